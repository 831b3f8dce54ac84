"""A study file: policies compared on the user's grids and workloads, with the findings, tables and figures."""
