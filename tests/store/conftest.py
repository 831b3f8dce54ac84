"""What the tests here share; it lives in ``store_fixtures``."""

import tests.support.shared_statements  # noqa: F401 - turns it on
from tests.support.store_fixtures import empty_url, open_store, server, store, url

__all__ = ["empty_url", "open_store", "server", "store", "url"]
