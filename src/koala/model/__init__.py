"""The values that everything else speaks of: requests, grids, messages, launches, links, the schema of the API.

Frozen values and pure arithmetic; nothing here needs a world, a clock or a file.
"""
