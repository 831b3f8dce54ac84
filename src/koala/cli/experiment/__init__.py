"""``koala experiment``."""
