"""The page of metrics names every number that a daemon gives to monitoring, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from koala.daemon.api.metrics import RequestNumbers, exposition
from koala.daemon.service.sites.metrics import Metrics

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "metrics.md"
SECTION = "## Of the daemon"


def told() -> set[str]:
    """The names in the first column of the daemon's table, without labels."""
    rows = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].splitlines()
    cells = [row.split(" | ")[0] for row in rows if row.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(koala_[a-z_]+)", cell)}


def given() -> set[str]:
    """The names that monitoring sees; those of counters have an ending."""
    numbers = Metrics(
        jobs={},
        sites=(),
        queues={},
        transfers_active=0,
        arriving_bytes=0,
        events_handled=0,
        commits=0,
        commands_owed=0,
        recoveries=0,
        journal_entries=0,
        started_at=0.0,
        working=True,
    )
    text = exposition(numbers, RequestNumbers(), streams_open=0).decode()
    families = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    return {f"{name}_total" if kind == "counter" else name for name, kind in families}


def test_every_number_for_monitoring_is_on_the_page() -> None:
    assert len(given()) > 15
    assert told() == given()
