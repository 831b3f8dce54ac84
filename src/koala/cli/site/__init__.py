"""``koala site`` and ``koala sites``."""
