"""The version of Koala, in a module of its own so that every floor may know it."""

__version__ = "0.1.0"
