"""What the tests of sites share; it lives in ``tests.support``."""

from tests.support.paper_batch import brisk

__all__ = ["brisk"]
