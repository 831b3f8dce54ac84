"""What the tests here share; it lives in ``daemon_databases``."""

from daemon_databases import database, server

__all__ = ["database", "server"]
