"""Limits of accounts and QOS are read as Slurm keeps to them; what is not understood limits nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.model.grid import BatchSettings
from koala.sites.batch.slurm.listing import listing_script
from koala.sites.batch.slurm.quota import SlurmQuota, Terms, parse_quota, terms_of
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.batch.system import BatchEnd, EndKind
from tests.support.paths import RECORDED
from tests.support.real_programs import real_program

AWKS = ("gawk", "mawk", "busybox awk")


def recorded(name: str) -> str:
    """What is below the first line, which says where it comes from."""
    return (RECORDED / name).read_text().partition("\n")[2]


def system(*options: str, **fields: Any) -> SlurmSystem:
    return SlurmSystem(BatchSettings(work_directory="/w", submit_options=options, **fields))


# ------------------------------------------------------------------------------------------------ real output


def test_of_an_idle_cluster_we_may_have_what_the_account_above_ours_leaves() -> None:
    printed = recorded("slurm_22.05_accounts_idle.txt")
    listing = system().parse_listing(printed)
    assert (listing.processors, listing.others) == (6, 2), "physics may have 6, and a colleague has 2 of them"
    narrow = system("--qos=small").parse_listing(printed)
    assert (narrow.processors, narrow.others) == (3, 0), "a user of this QOS may have 3, whatever others have of it"


def test_a_job_that_asks_for_more_than_its_limit_never_starts_and_one_that_only_waits_may() -> None:
    listing = system().parse_listing(recorded("slurm_22.05_accounts_busy.txt"))
    ends = {job.token[:3]: job.end for job in listing.jobs}
    why = "QOSMaxCpuPerUserLimit: it asks for 4 processors, and the limit is 3 processors (MaxTRESPU of QOS small)"
    assert ends == {"1.1": None, "1.2": None, "1.3": BatchEnd(kind=EndKind.UNSUITABLE, reason=why)}
    # Its jobs tell which QOS they have. One of them waits for a limit, so that nothing more would start.
    assert (listing.processors, listing.others) == (3, 1)


def test_where_users_see_nothing_of_others_the_limits_that_are_shown_count() -> None:
    printed = recorded("slurm_22.05_accounts_private.txt")
    assert system().parse_listing(printed).processors == 3
    assert system("--qos=normal").parse_listing(printed).processors == 8, "the account above is not shown"


# ------------------------------------------------------------------------------------------- what counts for us

UNLIMITED = "cpu=N(0),mem=N(0)"


def association(account: str, user: str = "", *, parent: str = "", partition: str = "", **limits: str) -> str:
    words = "\n".join(f"    {name}={value}" for name, value in limits.items())
    owner = f"{user}(7)" if user else ""
    default = "Yes" if user and account == "group" else "No"
    return (
        f"ClusterName=c Account={account} UserName={owner} Partition={partition} Priority=0 ID=1\n"
        f"    ParentAccount={parent} Lft=1 DefAssoc={default}\n{words}"
    )


def quality(name: str, *, users: str = "", accounts: str = "", **limits: str) -> str:
    words = "\n".join(f"    {key}={value}" for key, value in limits.items())
    return f"QOS={name}(3)\n{words}\n    Account Limits\n{accounts}\n    User Limits\n{users}"


ME = association("group", "me")
HEAD = ("user me 7", "enforced associations,limits,qos")


def quota(*told: str, head: Sequence[str] = HEAD, terms: Terms = Terms(), newest: Terms = Terms()) -> SlurmQuota:  # noqa: B008
    lines = [line for each in (*head, *told) for line in each.split("\n") if line.strip()]
    return parse_quota(lines, terms, {"main"}, newest)


def test_nothing_told_limits_nothing() -> None:
    assert quota(head=()) == SlurmQuota()
    assert quota() == SlurmQuota()
    assert quota(ME) == SlurmQuota()


def test_each_account_above_counts_and_the_tightest_is_named() -> None:
    told = quota(
        association("group", "me", GrpTRES="cpu=20(2),mem=N(0)"),
        association("group", parent="physics(2)", GrpTRES="cpu=9(5)"),
        association("physics", parent="root(1)", GrpTRES="cpu=12(11)"),
        association("root"),
        association("chemistry", parent="root(1)", GrpTRES="cpu=1(1)"),
    )
    assert told == SlurmQuota(9, 1, "9 processors (GrpTRES of account group)")


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"GrpJobs": "3(2)"}, None),
        ({"GrpJobs": "3(3)"}, 0),
        ({"MaxJobs": "1(2)"}, 0),
        ({"GrpTRESMins": "cpu=100(99),billing=N(7)"}, None),
        ({"GrpTRESMins": "cpu=N(99),billing=100(100)"}, 0),
        ({"GrpTRES": "cpu=N(4),mem=5(5)"}, None),  # what a job asks of these nobody knows
        ({"GrpJobs": "3", "MaxJobs": "", "GrpTRES": "cpu=x(1)"}, None),
    ],
)
def test_jobs_and_budgets_that_are_used_up_leave_nothing(limits: dict[str, str], left: int | None) -> None:
    assert quota(association("group", "me", **limits)).left == left


def test_limits_that_the_controller_does_not_keep_to_are_none() -> None:
    limited = association("group", "me", GrpTRES="cpu=4(4)")
    assert quota(limited) == SlurmQuota(4, 0, "4 processors (GrpTRES of user me)")
    assert quota(limited, head=("user me 7", "enforced associations,qos")) == SlurmQuota()
    assert quota(limited, head=("user me 7",)) == SlurmQuota()
    assert quota(limited, head=("user you 8", HEAD[1])) == SlurmQuota()


def test_a_partitions_qos_goes_before_the_jobs_and_that_before_the_account() -> None:
    group = association("group", parent="root(1)", GrpTRES="cpu=4(1)", GrpJobs="9(9)")
    fast, slow = quality("fast", GrpTRES="cpu=10(2)"), quality("slow", GrpTRES="cpu=7(7)", GrpJobs="5(1)")
    assert quota(ME, group, fast, slow, terms=Terms(qos="fast")).most == 10
    assert quota(ME, group, fast, slow, terms=Terms(qos="fast")).left == 0, "of the account's own limits one is left"
    assert quota(ME, group, fast, slow, terms=Terms(qos="slow")) == SlurmQuota(
        7, 0, "7 processors (GrpTRES of QOS slow)"
    )
    both = quota(ME, group, fast, slow, "partition main fast", terms=Terms(qos="slow"))
    assert both == SlurmQuota(10, 8, "10 processors (GrpTRES of QOS fast)")
    assert quota(ME, group, fast, "partition main N/A").most == 4
    assert quota(ME, group, fast, "partition low fast").most == 4


def test_what_each_user_and_each_account_may_have_of_a_qos_counts_with_our_own_use() -> None:
    users = "      7\n        MaxJobsPU=3(1)\n        MaxTRESPU=cpu=6(2)\n      8\n        MaxTRESPU=cpu=6(6)"
    mine = quota(ME, quality("q", users=users), terms=Terms(qos="q"))
    assert mine == SlurmQuota(6, 4, "6 processors (MaxTRESPU of QOS q)")
    named = users.replace("      7\n", "      me(7)\n")
    assert quota(ME, quality("q", users=named), terms=Terms(qos="q")) == mine, "later versions write names"
    others = "      8\n        MaxJobsPU=3(3)\n        MaxTRESPU=cpu=6(6)"
    assert quota(ME, quality("q", users=others), terms=Terms(qos="q")).left == 6, "we have none of it"
    accounts = "      group\n        MaxJobsPA=N(0)\n        MaxTRESPA=cpu=5(4)"
    assert quota(ME, quality("q", accounts=accounts), terms=Terms(qos="q")).left == 1


def test_the_qos_is_the_one_that_is_named_or_that_our_jobs_have_or_the_default() -> None:
    told = (ME, quality("normal", GrpTRES="cpu=9(0)"), quality("q", GrpTRES="cpu=5(0)"))
    assert quota(*told) == SlurmQuota(), "nobody knows"
    assert quota(*told, terms=Terms(qos="q"), newest=Terms(qos="normal")).most == 5
    assert quota(*told, newest=Terms(qos="q")).most == 5
    assert quota(*told, "default c|group||q|normal,q").most == 5
    assert quota(*told, "default c|group|||q").most == 5, "the only one that it may have"
    assert quota(*told, "default c|group|||normal,q").most == 9
    assert quota(*told, "default elsewhere|group||q|normal,q", "default c|other||q|q").most is None


def test_the_account_is_the_one_that_is_named_or_that_our_jobs_have_or_the_default() -> None:
    told = (association("group", "me", GrpTRES="cpu=2(0)"), association("free", "me", GrpTRES="cpu=3(0)"))
    assert quota(*told).most == 2, "the default"
    assert quota(*told, terms=Terms(account="free")).most == 3
    assert quota(*told, newest=Terms(account="free")).most == 3
    assert quota(*told, terms=Terms(account="nobody's")) == SlurmQuota()
    of_partition = association("group", "me", partition="main", GrpTRES="cpu=1(0)")
    assert quota(*told, of_partition).most == 1, "one for the partition goes before one for all"
    assert quota(*told, of_partition.replace("Partition=main", "Partition=low")).most == 2


@pytest.mark.parametrize(
    ("settings", "terms"),
    [
        ({}, Terms()),
        ({"account": "a", "submit_options": ("--qos=q", "-x", "n1")}, Terms("a", "q")),
        ({"account": "a", "submit_options": ("-A", "b", "-qx", "--qos", "y")}, Terms("b", "y")),
        ({"environment": (("SBATCH_QOS", "q"), ("SBATCH_ACCOUNT", "a"))}, Terms("a", "q")),
    ],
)
def test_a_sites_settings_name_account_and_qos_in_every_way_that_sbatch_knows(
    settings: dict[str, Any], terms: Terms
) -> None:
    assert terms_of(BatchSettings(work_directory="/w", **settings)) == terms


# ------------------------------------------------------------------------------------------------------ the text


def play(tmp_path: Path, text: str, awk: str = "", **programs: str) -> list[str]:
    """What a text prints where these scripts are Slurm's commands; it must succeed."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for name, body in {**programs, **({"awk": f'exec {awk} "$@"'} if awk else {})}.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin"}
    head = "koala_user=nobody koala_jobs=\nid() { echo 65534; }\n"
    done = subprocess.run(["/bin/sh"], input=head + text, env=environment, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.splitlines()


def scontrol(printed: Path) -> str:
    """One that tells of associations what a file holds below its first line."""
    return (
        f"case \"$*\" in *assoc_mgr*) sed 1d '{printed}' ;;\n"
        "*config*) echo 'AccountingStorageEnforce = associations,limits' ;;\n"
        "*partition*) echo 'PartitionName=main AllowQos=ALL QoS=q State=UP' ;; *) exit 1 ;; esac"
    )


@pytest.mark.parametrize("awk", AWKS)
def test_every_awk_chooses_what_is_ours_of_all_accounts(tmp_path: Path, awk: str) -> None:
    real_program(awk.split()[0])
    text = listing_script(BatchSettings(work_directory="/w"), "koala_quota")
    commands = {
        "scontrol": scontrol(RECORDED / "slurm_22.05_assoc_mgr.txt"),
        "sacctmgr": "echo 'alpha|group||small|normal,small'",
    }
    lines = play(tmp_path, text, awk, **commands)
    accounts = [line.split()[1] for line in lines if line.startswith("ClusterName=")]
    assert accounts == ["Account=group", "Account=group", "Account=physics", "Account=root"]
    assert [line for line in lines if line.startswith("QOS=")] == ["QOS=normal(1)", "QOS=small(2)"]
    assert lines[-3:] == [
        "enforced associations,limits",
        "partition main q",
        "default alpha|group||small|normal,small",
    ]
    assert parse_quota(lines, Terms(), {"main"}, Terms()) == SlurmQuota(3, 1, "3 processors (MaxTRESPU of QOS small)")


def test_the_database_is_asked_only_where_nothing_else_tells_the_qos(tmp_path: Path) -> None:
    commands = {"scontrol": scontrol(RECORDED / "slurm_22.05_assoc_mgr.txt"), "sacctmgr": "echo asked"}
    settings = BatchSettings(work_directory="/w")
    text = listing_script(settings, "koala_quota")
    assert play(tmp_path, text, **commands)[-1] == "default asked"
    ours = "koala_jobs='job 1|PENDING|1|main|t|a|q|None|koala-1.1-ab'\n"
    assert "default asked" not in play(tmp_path, ours + text, **commands)
    named = listing_script(BatchSettings(work_directory="/w", submit_options=("--qos=q",)), "koala_quota")
    assert "default asked" not in play(tmp_path, named, **commands)


def test_a_site_without_accounts_or_without_limits_is_asked_one_question_and_prints_nothing(tmp_path: Path) -> None:
    text = listing_script(BatchSettings(work_directory="/w"), "koala_quota")
    asked = tmp_path / "asked"
    empty = (
        f"echo \"$*\" >>{asked}\nprintf 'Current Association Manager state\\n\\nNo associations currently cached\\n'"
    )
    assert play(tmp_path, text, scontrol=empty, sacctmgr="exit 1") == []
    assert play(tmp_path, text, scontrol="exit 1", sacctmgr="exit 1") == []
    assert len(asked.read_text().splitlines()) == 1


@pytest.mark.parametrize(("kind", "questions"), [("none", 1), ("slurmdbd", 2)])
def test_a_listing_asks_for_limits_only_where_something_is_accounted(
    tmp_path: Path, kind: str, questions: int
) -> None:
    asked = tmp_path / "asked"
    scontrol = f"echo \"$*\" >>{asked}\necho 'AccountingStorageType = accounting_storage/{kind}'"
    text = listing_script(BatchSettings(work_directory="/w"))
    play(tmp_path, text, sinfo=":", squeue=":", scontrol=scontrol, sacctmgr="exit 1")
    limits = ["show assoc_mgr flags=assoc,qos users=65534"]
    assert asked.read_text().splitlines() == ["show config", *limits][:questions]


# ------------------------------------------------------------------------------------------------------- garbage


LINES = st.one_of(
    st.sampled_from(
        [*HEAD, *ME.split("\n"), *quality("q", users="      7", GrpTRES="cpu=4(9)").split("\n"), "partition main q"]
    ),
    st.sampled_from(["QOS=", "ClusterName=", "Limits", "User Limits", "7", "default ", "x=", "=", "GrpTRES==,=("]),
    st.text(max_size=60).filter(lambda text: bool(text.strip())),
)


@given(st.lists(LINES, max_size=25), st.sampled_from([None, "q"]))
def test_garbage_is_some_quota_and_never_an_error(lines: list[str], qos: str | None) -> None:
    told = parse_quota(lines, Terms(qos=qos), {"main"}, Terms())
    assert told.most is None or told.most >= 0
    assert told.left is None or told.left >= 0


@given(st.integers(0, 4_000), st.integers(0, 4_000), st.text(max_size=3))
def test_real_limits_that_are_cut_or_altered_are_no_error(begin: int, end: int, instead: str) -> None:
    printed = recorded("slurm_22.05_accounts_busy.txt").partition("koala quota\n")[2].partition("koala jobs")[0]
    lines = [line for line in (printed[:begin] + instead + printed[end:]).split("\n") if line.strip()]
    parse_quota(lines, Terms(), {"main"}, Terms(qos="small"))
