"""The check of a site, step by step: whether it can be used, and what to mend."""
