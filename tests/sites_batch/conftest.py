"""What the tests here share; it lives in ``paper_batch``."""

from paper_batch import brisk

__all__ = ["brisk"]
