"""How long a job may run under Slurm's limits, what they mean for one that asks for more, and whose they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from koala.model.grid import BatchSettings
from koala.model.messages import Outcome
from koala.sites.batch.component import never_starts
from koala.sites.batch.grid_engine.system import GridEngineSystem
from koala.sites.batch.slurm.listing import listing_script
from koala.sites.batch.slurm.quota import SlurmQuota, Terms, parse_quota
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.batch.system import BatchEnd, EndKind
from tests.support.paths import RECORDED

POLICY = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
    "and/or time limits)"
)


def recorded_limits(*changes: tuple[str, str]) -> str:
    """What a controller printed of its associations, with some limits that it did not have then."""
    text = (RECORDED / "slurm_22.05_assoc_mgr.txt").read_text().partition("\n")[2]
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, 1)
    return text


def chosen(tmp_path: Path, printed: str, user: str = "nobody", jobs: str = "", **settings: Any) -> list[str]:
    """The lines that the text prints where the controller has these associations. The database was asked where one
    of them says so."""
    (tmp_path / "printed").write_text(printed)
    tools = {
        "scontrol": (
            f"case \"$*\" in *assoc_mgr*) cat '{tmp_path}/printed' ;;\n"
            "*config*) echo 'AccountingStorageEnforce = associations,limits' ;;\n*) exit 0 ;; esac"
        ),
        "sacctmgr": "echo asked",
        "id": "echo 65534",
    }
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    text = listing_script(BatchSettings(work_directory="/w", **settings), "koala_quota")
    done = subprocess.run(
        ["/bin/sh"],
        input=f"koala_user=$GIVEN_USER\nkoala_jobs=$GIVEN_JOBS\n{text}",
        env={"PATH": f"{tmp_path}:{os.defpath}", "GIVEN_USER": user, "GIVEN_JOBS": jobs},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout.splitlines()


def longest_s(lines: Sequence[str], qos: str | None = None) -> float | None:
    return parse_quota(lines, Terms(qos=qos), {"main"}, Terms()).longest_s


# ----------------------------------------------------------------------------------------- how long a job may run

OF_NOBODY = ("MaxJobs=4(1) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=", "MaxJobs=4(1) MaxJobsAccrue= MaxWallPJ=90")


def test_an_association_and_before_it_a_qos_say_how_long_a_job_may_run(tmp_path: Path) -> None:
    assert longest_s(chosen(tmp_path, recorded_limits())) is None
    of_user = chosen(tmp_path, recorded_limits(OF_NOBODY))
    assert longest_s(of_user) == 5_400.0
    of_qos = chosen(tmp_path, recorded_limits(OF_NOBODY, ("    MaxWallPJ=\n", "    MaxWallPJ=30\n")))
    assert (longest_s(of_qos, "normal"), longest_s(of_qos, "small")) == (1_800.0, 5_400.0)


def test_a_time_is_a_limit_also_where_nothing_else_is_limited(tmp_path: Path) -> None:
    text = recorded_limits().replace("=4(1)", "=N(1)").replace("cpu=6(", "cpu=N(").replace("cpu=3(", "cpu=N(")
    assert chosen(tmp_path, text) == []
    lines = chosen(tmp_path, text.replace("MaxJobs=N(1) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=", OF_NOBODY[1]))
    assert longest_s(lines) == 5_400.0


@pytest.mark.parametrize("text", ["", "0", "N", "-1", "90(3)", "9" * 30, "\u0669\u0660"])
def test_what_is_no_time_limits_nothing(text: str) -> None:
    lines = [
        "user me 7",
        "enforced limits",
        "ClusterName=c Account=group UserName=me(7) Partition= Priority=0 ID=1",
        f"    MaxJobs= MaxWallPJ={text}",
    ]
    assert parse_quota(lines, Terms(), {"main"}, Terms()) == SlurmQuota()


def test_the_shorter_of_the_partitions_time_and_the_users_counts() -> None:
    def listed(partition_limit: str, wall: str) -> float | None:
        printed = (
            f"koala nodes\nn1|idle|0/4/0/4|main*|up|{partition_limit}\nkoala waiting\nkoala quota\nuser me 7\n"
            "enforced limits\nClusterName=c Account=group UserName=me(7) Partition= Priority=0 ID=1\n"
            f"    MaxJobs= MaxWallPJ={wall}\nkoala jobs\n"
        )
        return SlurmSystem(BatchSettings(work_directory="/w")).parse_listing(printed).job_limit_s

    assert listed("infinite", "") is None
    assert listed("infinite", "60") == 3_600.0
    assert listed("2:00:00", "60") == 3_600.0
    assert listed("30:00", "60") == 1_800.0


# --------------------------------------------------------------------------------------------- who asks for too much


@pytest.mark.parametrize(
    ("complaint", "of_the_job"),
    [
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", True),
        (
            "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing)",
            True,
        ),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", True),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination", False),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", False),
        ("sbatch: error: invalid partition specified: nowhere", False),
    ],
)
def test_slurm_refuses_what_a_job_asks_for_or_everything_of_ours(complaint: str, of_the_job: bool) -> None:
    system = SlurmSystem(BatchSettings(work_directory="/w"))
    refusal = system.refusal(1, "", complaint)
    assert refusal is not None
    assert system.is_for_what_it_asks(refusal) is of_the_job


def test_grid_engine_has_no_queue_for_it_or_refuses_everything_of_ours() -> None:
    system = GridEngineSystem(BatchSettings(work_directory="/w"))
    none = system.refusal(1, "", "Unable to run job: error: no suitable queues.\nExiting.")
    assert none is not None
    assert system.is_for_what_it_asks(none)
    denied = system.refusal(1, "", 'Unable to run job: "nobody" has no permission, denied.\nExiting.')
    assert denied is not None
    assert not system.is_for_what_it_asks(denied)


def test_a_job_that_can_never_start_is_unsuitable_unless_no_other_would_either() -> None:
    for kind, outcome in ((EndKind.UNSUITABLE, Outcome.UNSUITABLE), (EndKind.SITE, Outcome.SITE_FAILED)):
        abort = never_starts(BatchEnd(kind=kind, reason="QOSMaxWallDurationPerJobLimit"))
        assert abort.outcome is outcome
        assert abort.reason == "its job can never start: QOSMaxWallDurationPerJobLimit"


# ------------------------------------------------------------------------------------------------------ whose limits


def test_jobs_elsewhere_on_the_cluster_do_not_tell_which_qos_ours_will_have(tmp_path: Path) -> None:
    def asked(partition: str, of: str = "group", **settings: str) -> bool:
        jobs = f"job 1|RUNNING|1|{partition}|t|{of}|q|None|koala-1.1-ab"
        return "default asked" in chosen(tmp_path, recorded_limits(), jobs=jobs, **settings)

    assert not asked("main", queue="main")
    assert not asked("low,main", queue="main,fast")
    assert asked("low", queue="main")
    assert asked("mainly", queue="main")
    assert not asked("low"), "which partition is the default one the text cannot know"
    assert asked("main", "other", queue="main", account="group")


def test_a_name_with_a_backslash_is_found(tmp_path: Path) -> None:
    user = r"CORP\new"
    lines = chosen(
        tmp_path, recorded_limits().replace("UserName=nobody(65534)", f"UserName={user}(65534)"), user=user
    )
    assert f"user {user} 65534" in lines
    assert any(f"UserName={user}(65534)" in line for line in lines)
