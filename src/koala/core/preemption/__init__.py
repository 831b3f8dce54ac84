"""Low-priority jobs make room for a high-priority job without places: which jobs, how many, and by what steps."""
