"""What the tests here share; it lives in ``databases`` and ``store_fixtures``."""

import tests.support.shared_statements  # noqa: F401 - turns it on
from tests.support.databases import server
from tests.support.store_fixtures import empty_url, open_store, store, url

__all__ = ["empty_url", "open_store", "server", "store", "url"]
