"""The daemon over HTTP: routes, authentication, limits, errors in one form, and the stream of events.

The service, not this package, decides what a caller may see or do.
"""

from __future__ import annotations

from koala.daemon.api.app import make_app
from koala.daemon.api.listeners import RequestTraffic

__all__ = ["RequestTraffic", "make_app"]
