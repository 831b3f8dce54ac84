"""Where components run: the protocol that every kind of site keeps.

A site carries out commands and reports what happened. It decides nothing about jobs. It starts an application only by
running the script that it receives.
"""

from __future__ import annotations

from koala.sites.protocol import LiveSite, Mail, NotNowError, SiteError, Stream, UnseenError

__all__ = ["LiveSite", "Mail", "NotNowError", "SiteError", "Stream", "UnseenError"]
