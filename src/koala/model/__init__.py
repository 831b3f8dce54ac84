"""The values that all rooms share: requests, grids, messages, launches, links, the schema of the API.

Frozen values and pure arithmetic, with no clock, no files and no I/O.
"""
