"""``koala grid``."""
