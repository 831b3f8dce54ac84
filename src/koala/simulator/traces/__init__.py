"""Workload traces (SWF, GWF) and failure traces: read, summarised, written and run."""
