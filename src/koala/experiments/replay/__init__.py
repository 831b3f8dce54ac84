"""A workload or trace submitted to a live grid, and what it adds up to."""
