"""``koala map``."""
