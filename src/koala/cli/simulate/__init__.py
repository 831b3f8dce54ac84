"""``koala simulate``."""
