"""Calls about sites and links: overviews, conditions, usage, and operators' commands."""
