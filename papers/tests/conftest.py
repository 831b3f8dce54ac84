"""Properties are checked as in the tests of Koala, also where these tests run alone."""

from __future__ import annotations

import tests.conftest  # noqa: F401 - it sets how many examples are drawn, and from which seed
