"""What a dry run says of when a job would start."""

from __future__ import annotations

from typing import Any

import pytest

from koala.cli.job.graph import when_words
from koala.cli.terminal.words import clock
from koala.model.api import DryRun, RefusalInfo

NOW = 1_800_000_000.0
REFUSED = RefusalInfo(policy="WF", reason="too little is idle", cure="2 more idle processors")
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
            ["It would be number 7 in its queue; when it starts is told when it has a plan."],
        ),
        ({"refusal": REFUSED.model_copy(update={"permanent": True})}, []),
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
    ],
)
def test_a_dry_run_says_when_a_job_would_start_where_that_is_known(fields: dict[str, Any], told: list[str]) -> None:
    assert when_words(DryRun(policy="WF", **fields), NOW) == told
