"""What the tests here share; it lives in ``tests.support.browser``."""

from tests.support.browser import browser

__all__ = ["browser"]
