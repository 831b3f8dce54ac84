"""What serves plans when their times come near; the plans themselves are in ``koala.core.plans``."""
