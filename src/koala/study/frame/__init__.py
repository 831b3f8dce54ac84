"""What every study shares: units of work, runs, statistics, claims, figures and the report."""
