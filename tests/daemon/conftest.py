"""What the tests here share; it lives in ``daemon_databases``."""

import tests.support.shared_statements  # noqa: F401 - turns it on
from tests.support.databases import database, server

__all__ = ["database", "server"]
