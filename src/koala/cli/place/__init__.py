"""``koala place``."""
