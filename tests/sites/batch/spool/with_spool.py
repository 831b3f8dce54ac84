"""``koala``, where the batch system for tests is registered."""

from __future__ import annotations

from koala.sites.batch.systems import SYSTEMS
from tests.sites.batch.spool import SPOOL

SYSTEMS[SPOOL.name] = SPOOL

if __name__ == "__main__":
    from koala.cli import main

    main()
