"""``koala submit``, ``koala job`` and ``koala jobs``."""
