"""Workload files in YAML."""
