"""``koala replay``."""
