"""What the tests here share; it lives in ``dashboard_fixtures``."""

from dashboard_fixtures import browser, door

__all__ = ["browser", "door"]
