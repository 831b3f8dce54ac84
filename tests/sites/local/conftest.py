"""What the tests here share; it lives in ``tests.support.live_fixtures``."""

from tests.support.live_fixtures import no_process_is_left

__all__ = ["no_process_is_left"]
