"""The common parts of every study: units of work, runs, statistics, claims, figures and the report."""
