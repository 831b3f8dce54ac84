"""The dashboard: pages that the daemon serves itself, without a build step and without outside resources.

A page is complete without JavaScript. With it, the page follows the daemon's events and changes in place.
"""

from __future__ import annotations

from koala.daemon.dashboard.router import dashboard_router

__all__ = ["dashboard_router"]
