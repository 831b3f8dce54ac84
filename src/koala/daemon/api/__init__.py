"""The daemon over HTTP: routes, who is asking, limits, errors in one form, and the stream of events.

Nothing here decides what a caller may see or do; the service does.
"""

from __future__ import annotations

from koala.daemon.api.app import make_app
from koala.daemon.api.listeners import RequestTraffic

__all__ = ["RequestTraffic", "make_app"]
