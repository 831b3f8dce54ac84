"""``koala demo``."""
