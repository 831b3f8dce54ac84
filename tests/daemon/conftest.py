"""What the tests here share; it lives in ``daemon_databases``."""

from tests.support.databases import database, server

__all__ = ["database", "server"]
