"""What serves plans when their time comes near; the plans themselves are ``koala.core.plans``."""
