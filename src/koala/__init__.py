"""Koala: a co-allocating scheduler for many clusters."""

__version__ = "0.1.0"
