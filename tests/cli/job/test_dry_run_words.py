"""What a dry run says of when a job would start."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koala.cli.job.graph import after_words, when_words
from koala.cli.terminal.words import clock
from koala.model.api import DryRun, DryRunGraphJob, Refusal, Shortage

NOW = 1_800_000_000.0
SHORT = Shortage(site="delft", wanted=4, idle=2, missing=2, cure="2 more idle processors")
REFUSED = Refusal(policy="WF", reason="too little is idle", cure="2 more idle processors", shortages=(SHORT,))
NO_FILE = Refusal(policy="CF", reason="no site holds a replica of the input file 'x'", cure="register a replica")
SOON = clock(NOW + 60.0, NOW)
AT_MOST = f"at the latest at {clock(NOW + 900.0, NOW)}, if every job uses its whole walltime"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"expected_at": NOW + 0.1}, []),  # at once
        ({"expected_at": NOW + 60.0}, [f"Its files would be there at {SOON}, and it would start then."]),
        ({"expected_at": NOW + 60.0, "kept_back": "it waits for job 3 to be done"}, []),
        (
            {"refusal": REFUSED, "place_in_line": 7},
            ["It would be number 7 in its queue; its start is known once it has a plan."],
        ),
        (
            {"refusal": NO_FILE, "place_in_line": 1},
            ["It would be number 1 in its queue, where it waits: no site holds a replica of the input file 'x'."],
        ),
        ({"refusal": msgspec.structs.replace(REFUSED, permanent=True)}, []),
        (
            {
                "refusal": REFUSED,
                "expected_at": NOW + 60.0,
                "expected_sites": ["delft", "leiden"],
                "latest_at": NOW + 900.0,
                "ends_before": [3, 4],
            },
            [
                f"Expected at {SOON} on delft and leiden, if nobody comes before; {AT_MOST}.",
                "It waits for the end of jobs 3 and 4.",
            ],
        ),
        (
            {"refusal": REFUSED, "expected_at": NOW, "expected_sites": ["delft"], "latest_at": NOW},
            [
                "Expected any moment on delft, if nobody comes before; it should have started by now.",
            ],
        ),
    ],
)
def test_a_dry_run_says_when_a_job_would_start_where_that_is_known(fields: dict[str, Any], told: list[str]) -> None:
    assert when_words(DryRun(policy="WF", **fields), NOW) == told


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ({}, ""),
        ({"done": ["sweep"]}, ", after sweep"),
        ({"done": ["sweep"], "failed": ["prepare"]}, ", after sweep and the failure of prepare"),
        ({"ended": ["a"], "started": ["b"]}, ", after the end of a and the start of b"),
    ],
)
def test_a_dry_run_of_a_graph_says_what_must_become_of_the_others(after: dict[str, list[str]], told: str) -> None:
    assert after_words(DryRunGraphJob(name="x", after=after, dry_run=DryRun(policy="WF"))) == told
