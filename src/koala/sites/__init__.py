"""Where components run: the protocol that every kind of site keeps.

A site carries out what it is told and reports what happened; it decides nothing about jobs, and knows nothing of how
an application is started beyond running the script it is given.
"""

from __future__ import annotations

from koala.sites.protocol import LiveSite, Mail, NotNowError, SiteError, Stream, UnseenError

__all__ = ["LiveSite", "Mail", "NotNowError", "SiteError", "Stream", "UnseenError"]
