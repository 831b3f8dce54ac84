"""What the tests here share; it lives in ``live_fixtures``."""

from live_fixtures import no_process_is_left

__all__ = ["no_process_is_left"]
