"""A check of a site, step by step: what each step finds wrong, what it advises, and what is then not tried."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path

import pytest

from koala.model.grid import Claims, Containers, ContainerTool, Site, SiteKind
from koala.sites.batch.check.check import Finding, StepStatus, check_own_site
from koala.sites.batch.check.host import file_server_answers
from koala.sites.batch.check.machine import OwnMachine
from koala.sites.batch.check.reach_program import tried
from koala.sites.batch.check.steps import StepResult
from koala.sites.batch.grid_engine.check import parse_fields, parse_queue_summary
from koala.sites.batch.slurm.check import parse_partitions
from koala.sites.batch.system import BatchEnd, BatchJob, BatchState, EndKind
from koala.sites.remote_shell import ShellResult
from tests.support.played_site import ENVIRONMENT, NOW, OWNER, PARTITIONS, Reaction, listing, played, refused

IMAGES = Containers(tool=ContainerTool.CHARLIECLOUD)

PASSED, WARNED, FAILED, SKIPPED = StepStatus.PASSED, StepStatus.WARNED, StepStatus.FAILED, StepStatus.SKIPPED
GE = "grid_engine"


def job(state: BatchState, **more: object) -> BatchJob:
    return BatchJob(id="17", token="check-abcd", state=state, **more)  # type: ignore[arg-type]  # noqa: S106


def signs(found: dict[str, Finding]) -> dict[str, StepStatus]:
    return {step: finding.sign for step, finding in found.items()}


# ------------------------------------------------------------------------------------- the whole of a check


def test_a_healthy_slurm_site_passes_every_step_and_gets_no_job() -> None:
    found, site = played()
    assert list(found) == [
        "connection", "shell", "clock", "work directory", "owner", "programs", "controller", "queue", "processors",
        "submission", "mpiexec", "files", "job",
    ]  # fmt: skip
    assert signs(found) == dict.fromkeys(found, PASSED) | {"job": SKIPPED}
    submitted = [text for text in site.scripts if text.startswith("SUBMIT")]
    assert submitted == ["SUBMIT None None 2 /share/check-abcd --test-only\n"]


def test_a_healthy_grid_engine_site_passes_every_step_and_gets_no_job() -> None:
    found, site = played(kind=GE, queue="all.q", parallel_environment="mpi", processors=6)
    assert signs(found) == dict.fromkeys(found, PASSED) | {"job": SKIPPED}
    assert "parallel environment" in found
    submitted = [text for text in site.scripts if text.startswith("SUBMIT")]
    assert submitted == ["SUBMIT all.q None 2 /share/check-abcd -w v\n"]


def test_what_a_check_makes_is_removed() -> None:
    _, site = played(run=True)
    made = [index for index, text in enumerate(site.scripts) if text.startswith("mkdir /share/check-abcd")]
    removed = [index for index, text in enumerate(site.scripts) if text == "rm -rf -- /share/check-abcd\n"]
    assert len(made) == len(removed) == 2
    assert all(before < after for before, after in zip(made, removed, strict=True))
    assert any(text.split() == ["CANCEL", "check-abcd"] for text in site.scripts)


def test_without_a_connection_nothing_else_is_tried() -> None:
    found, site = played({"koala-answers": OSError("far: Permission denied (publickey)")}, ssh="far")
    assert found["connection"].sign is FAILED
    assert "Permission denied" in found["connection"].words
    assert "ssh-copy-id far" in found["connection"].advice
    others = [finding for step, finding in found.items() if step != "connection"]
    assert {finding.sign for finding in others} == {SKIPPED}
    assert {finding.words for finding in others} == {"not tried, since it needs: connection"}
    assert len(site.scripts) == 1


@pytest.mark.parametrize(("costs_s", "sign"), [(0.049, PASSED), (0.051, WARNED), (0.15, WARNED)])
def test_a_shell_of_the_account_that_is_slow_to_start_is_told_with_what_it_costs(
    costs_s: float, sign: StepStatus
) -> None:
    found, _ = played(ssh="far", asking_takes_s=lambda text: 0.02 + costs_s * ("SHLVL=0" in text))
    assert found["login"].sign is sign
    assert f"{costs_s * 1000:.0f} ms" in found["login"].words
    assert ("return ;;" in found["login"].advice) is (sign is WARNED)


def test_what_the_start_files_of_an_account_print_is_told_though_commands_do_not_see_it() -> None:
    answer = ShellResult(code=0, stdout=b"koala-answers\n", stderr=b"", greeting=b"welcome to far\n")
    found, _ = played({"koala-answers": lambda _: answer}, ssh="far")
    assert found["connection"].sign is FAILED
    assert "'welcome to far'" in found["connection"].words


def test_where_there_is_no_ssh_nobody_logs_in() -> None:
    found, _ = played(asking_takes_s=lambda text: 1.0 * ("SHLVL=0" in text))
    assert "login" not in found


def test_a_node_tells_whether_it_knows_a_name_and_reaches_a_port() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert tried("127.0.0.1", port).startswith("unreached 127.0.0.1 ")  # it does not listen yet
        listener.listen()
        assert tried("127.0.0.1", port) == "reached"
    assert tried("nowhere.invalid", port).startswith("unresolved ")


def test_a_skipped_step_names_the_first_that_is_to_blame() -> None:
    found, _ = played({"scontrol ping": refused("timeout")})
    assert found["controller"].sign is FAILED
    assert found["submission"].words == found["queue"].words == "not tried, since it needs: controller"
    assert signs(found)["work directory"] is signs(found)["mpiexec"] is PASSED


def test_a_question_that_is_not_answered_fails_its_step_alone() -> None:
    found, _ = played({"mpiexec": OSError("this machine: no answer within 20 s")})
    assert found["mpiexec"].sign is FAILED
    assert "no answer within 20 s" in found["mpiexec"].words
    assert found["submission"].sign is PASSED


# ---------------------------------------------------------------------------------------- one step at a time

# A node of which another has most of the memory, and an empty one.
MEMORY = (
    "koala nodes\nn1|mixed|2/6/0/8|main*|up|infinite\nn2|idle|0/8/0/8|main*|up|infinite\nkoala resources\nuser me\n"
    "configuration SelectTypeParameters=CR_CPU_MEMORY\nnode NodeName=n1 RealMemory=9000 AllocMem=7000\n"
    "node NodeName=n2 RealMemory=9000 AllocMem=0\n"
)
# reactions, settings, step, sign, a part of the words, a part of the advice
CASES: list[tuple[dict[str, Reaction], dict[str, object], str, StepStatus, str, str]] = [
    ({"koala-answers": "motd\nkoala-answers\n"}, {"ssh": "far"}, "connection", FAILED, "'motd'", "[ -t 1 ]"),
    ({"koala-answers": refused("no such")}, {"through": ("x",)}, "connection", FAILED, "no such", "check 'through'"),
    ({"koala-answers": OSError("Connection refused")}, {"ssh": "far"}, "connection", FAILED, "refused", "Port"),
    ({}, {"ssh": "far"}, "connection", PASSED, "far answers; a round trip takes 10 ms", ""),
    ({}, {"through": ("ip", "a b")}, "connection", PASSED, "through ip 'a b'", ""),
    ({"uname": "missing ln\nmissing df\nLinux\n"}, {}, "shell", FAILED, "missing there: ln, df", "PATH"),
    ({"uname": refused("syntax error")}, {}, "shell", FAILED, "syntax error", "POSIX sh"),
    ({"date": f"{NOW + 90:.0f}\n"}, {}, "clock", WARNED, "90 s ahead", "NTP"),
    ({"date": f"{NOW - 90:.0f}\n"}, {"claims": Claims.RESERVATION}, "clock", FAILED, "90 s behind", "NTP"),
    ({"date": "%s\n"}, {}, "clock", WARNED, "cannot be read", "date +%s"),
    ({"df -Pk": refused("mkdir: denied")}, {}, "work directory", FAILED, "/share: mkdir: denied", "work_directory:"),
    ({"df -Pk": "made\n/share\n/dev/x 9 0 9000 1% /\n"}, {}, "work directory", WARNED, "just now) has 9 MB", "room"),
    ({"df -Pk": "there\n/share\n"}, {}, "work directory", PASSED, "not told", ""),
    ({}, {}, "owner", PASSED, "nobody uses the work directory", ""),
    ({"owner=": f"owned\n{OWNER}\n"}, {}, "owner", PASSED, "is this Koala's", ""),
    ({"owner=": "owned\nthere:/other site beta\n"}, {}, "owner", FAILED, "there:/other site beta", "of its own"),
    ({"owner=": "owned\n\n"}, {}, "owner", FAILED, "one without a name", "remove /share/owner if that one is gone"),
    ({"owner=": refused("it is not a plain file")}, {}, "owner", FAILED, "/share/owner: it is not a", "remove it"),
    ({"squeue": "sbatch\n"}, {}, "programs", FAILED, "missing there: sbatch", "environment: {PATH:"),
    ({"VERSION": refused("?")}, {}, "controller", WARNED, "its version is not told", "nothing"),
    ({"show partition": refused("bad")}, {}, "queue", FAILED, "bad", "scontrol show partition"),
    ({}, {"queue": "huge"}, "queue", FAILED, "no partition huge", "there are low, main"),
    ({}, {"queue": "low,huge"}, "queue", FAILED, "no partition huge", "correct 'queue: ...'"),
    ({}, {"queue": "low,main"}, "queue", PASSED, "low, main: open, 16 processors", ""),
    ({}, {}, "queue", PASSED, "main, the default: open, 16 processors, up to 1-00:00:00 a job", ""),
    ({"partition": PARTITIONS.replace("State=UP", "State=DOWN")}, {}, "queue", FAILED, "main is DOWN", "another"),
    ({"partition": PARTITIONS.replace("RootOnly=NO", "RootOnly=YES")}, {}, "queue", FAILED, "root only", "operator"),
    (
        {"show partition": PARTITIONS.replace("AllowGroups=ALL", "AllowGroups=staff")},
        {}, "queue", FAILED, "for the groups staff", "operator",
    ),
    (
        {"show partition": PARTITIONS.replace("AllowGroups=ALL", "AllowGroups=staff,physics")},
        {}, "queue", PASSED, "open", "",
    ),
    (
        {"show partition": PARTITIONS.replace("AllowAccounts=ALL", "AllowAccounts=astro")},
        {"account": "bio"}, "queue", FAILED, "for the accounts astro", "operator",
    ),
    (
        {"show partition": PARTITIONS.replace("Default=YES", "Default=NO")},
        {}, "queue", FAILED, "no default partition", "there are low, main",
    ),
    ({"qhost": refused("commlib error")}, {"kind": GE}, "controller", FAILED, "commlib error", "SGE_QMASTER_PORT"),
    ({}, {"kind": GE, "queue": "huge.q"}, "queue", FAILED, "no queue huge.q", "there are all.q, long.q"),
    ({}, {"kind": GE}, "queue", PASSED, "any of all.q, long.q: 18 slots", ""),
    ({}, {"kind": GE, "queue": "all.q@host"}, "queue", PASSED, "all.q: 6 slots", ""),
    ({}, {"kind": GE}, "parallel environment", PASSED, "none is named", ""),
    ({"qconf -spl": ""}, {"kind": GE}, "parallel environment", WARNED, "there is none", "operator"),
    (
        {"qconf -sp ": refused("nope is not a parallel environment")},
        {"kind": GE, "parallel_environment": "nope"},
        "parallel environment", FAILED, "nope is not a parallel environment", "there are mpi, smp",
    ),
    (
        {"qconf -sq ": "pe_list make\n"}, {"kind": GE, "queue": "all.q", "parallel_environment": "mpi"},
        "parallel environment", FAILED, "all.q does not offer mpi", "pe_list",
    ),
    (
        {"qconf -sp ": ENVIRONMENT.replace("TRUE", "FALSE")}, {"kind": GE, "parallel_environment": "mpi"},
        "parallel environment", WARNED, "no control_slaves", "control_slaves TRUE",
    ),
    (
        {"qconf -sp ": ENVIRONMENT.replace("$fill_up", "$pe_slots")}, {"kind": GE, "parallel_environment": "mpi"},
        "parallel environment", WARNED, "on one node", "another",
    ),
    ({}, {"processors": 17}, "processors", FAILED, "17 are described, but the queue has 16", "'processors: 16'"),
    ({"LISTING": listing(processors=4)}, {}, "processors", WARNED, "4 can be used now", "come back"),
    (
        {"LISTING": listing(processors=0)}, {"submit_options": ("-C", "typo")},
        "processors", WARNED, "they lack what submit_options ask for", "correct 'submit_options: ...'",
    ),
    ({"LISTING": listing(others=3)}, {}, "processors", PASSED, "16 can be used, 3 of them taken by others", ""),
    ({"koala resources": refused("slow")}, {}, "memory", FAILED, "cannot be listed: slow", "sinfo"),
    ({"koala resources": "garbage"}, {}, "memory", FAILED, "makes no sense here", "version"),
    (
        {"koala resources": MEMORY}, {}, "memory", WARNED,
        "all memory of each node (as no default is set): it could get 8 of 14 idle processors", "--mem-per-cpu",
    ),
    (
        {"koala resources": MEMORY}, {"submit_options": ("--mem-per-cpu=1G",)}, "memory", PASSED,
        "a job asks for 1024 MB a processor (as --mem-per-cpu says): it could get 9 of 14 idle processors", "",
    ),
    (
        {"koala resources": MEMORY}, {"submit_options": ("--mem=3000",)}, "memory", PASSED,
        "a job asks for 3000 MB on each node (as --mem says): it could get 8 of 14 idle processors", "",
    ),
    (
        {"koala resources": MEMORY}, {"submit_options": ("--mem=1T",)}, "memory", WARNED,
        "no node has what it asks for", "ask for less",
    ),
    (
        {"koala resources": MEMORY.replace("AllocMem", "ActiveFeatures=fast AllocMem")},
        {"submit_options": ("-C", "typo", "--mem=10")}, "memory", WARNED,
        "no node has what it asks for", "'--constraint' (-C), correct it",
    ),
    ({"LISTING": refused("slow")}, {}, "processors", FAILED, "cannot be listed: slow", "squeue"),
    ({"LISTING": "garbage"}, {}, "processors", FAILED, "makes no sense here", "version"),
    ({"SUBMIT": refused("Invalid qos")}, {}, "submission", FAILED, "is refused: Invalid qos", "submit_options"),
    ({"SUBMIT": refused("no")}, {"processors": 1}, "submission", FAILED, "a job of 1 processor is refused", ""),
    ({}, {"account": "bio"}, "account", PASSED, "bio is accepted", ""),
    (
        {"SUBMIT None bio": refused("Invalid account")}, {"account": "bio"},
        "account", FAILED, "bio is refused: Invalid account", "correct 'account: ...'",
    ),
    ({"SUBMIT": refused("no")}, {"account": "bio"}, "account", SKIPPED, "refused without it too", ""),
    ({"mpiexec": refused("", 3)}, {}, "mpiexec", WARNED, "cannot run here", "search_path"),
    ({"mpiexec": "/usr/bin/mpiexec\nmpiexec (OpenRTE) 4.1\n"}, {}, "mpiexec", WARNED, "OpenRTE", "search_path"),
    ({"ch-run": refused("", 1)}, {"containers": IMAGES}, "containers", WARNED, "there is no ch-run", "search_path"),
    ({"ch-run": "/usr/bin/ch-run\n"}, {"containers": IMAGES}, "containers", PASSED, "/usr/bin/ch-run", ""),
    (
        {"scontrol ping": "Slurmctld(primary) at head is DOWN\n*****\n** RESTORE SLURMCTLD TO SERVICE **\n"}, {},
        "controller", FAILED, "Slurmctld(primary) at head is DOWN", "SLURM_CONF",
    ),
    (
        {"qconf -sp ": refused("nope is not a parallel environment")},
        {"kind": GE, "parallel_environment": "nope"},
        "processors", SKIPPED, "needs: parallel environment", "",
    ),
    (
        {"[ -d": "/opt/nothing/bin\n"}, {"search_path": ("/opt/nothing/bin",)},
        "mpiexec", WARNED, "/opt/nothing/bin, which is not there", "search_path",
    ),
    ({}, {}, "files", PASSED, "this machine sees its files", ""),
    ({}, {"through": ("ip", "x")}, "files", PASSED, "files go in a stream through this machine", ""),
    ({}, {"claims": Claims.RESERVATION}, "reservation", SKIPPED, "tried with --run", ""),
    (
        {"UNRESERVE": ""}, {"claims": Claims.RESERVATION, "run": True},
        "reservation", PASSED, "granted and given back", "",
    ),
    (
        {"UNRESERVE": "", "RESERVE": refused("Access denied")}, {"claims": Claims.RESERVATION, "run": True},
        "reservation", FAILED, "Access denied", "'claims: barrier'",
    ),
    (
        {"UNRESERVE": refused("stuck")}, {"claims": Claims.RESERVATION, "run": True},
        "reservation", FAILED, "could not be given back: stuck", "by hand",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reactions", "settings", "step", "sign", "words", "advice"),
    CASES,
    ids=[f"{step}: {words}" for _, _, step, _, words, _ in CASES],
)
def test_a_step_says_what_it_found_and_what_to_do(
    reactions: dict[str, Reaction], settings: dict[str, object], step: str, sign: StepStatus, words: str, advice: str
) -> None:
    found, _ = played(reactions, **settings)  # type: ignore[arg-type]
    assert found[step].sign is sign, found[step]
    assert words in found[step].words
    assert "***" not in found[step].words
    assert advice in found[step].advice
    assert bool(found[step].advice) == (sign in (WARNED, FAILED))


def test_the_memory_is_asked_for_without_what_start_files_may_set(tmp_path: Path) -> None:
    _, site = played({"koala resources": MEMORY})
    [asked] = [text for text in site.scripts if "koala resources" in text]
    for name in ("sinfo", "scontrol"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s" "${SINFO_PARTITION-}"\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SINFO_PARTITION": "other"}
    done = subprocess.run(["/bin/sh"], input=asked, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "koala nodes\nkoala resources\n"


# --------------------------------------------------------------------------------------------- the tiny job


def test_a_job_that_runs_tells_its_nodes() -> None:
    found, site = played(run=True)
    assert found["job"].sign is PASSED
    assert "job 17 ran on n1, n2" in found["job"].words
    assert [text for text in site.scripts if text.startswith("SUBMIT")] == [
        "SUBMIT None None 2 /share/check-abcd --test-only\n",
        "SUBMIT None None 2 /share/check-abcd\n",
    ]


JOBS: list[tuple[dict[str, Reaction], str, str]] = [
    ({"SUBMIT None None 2 /share/check-abcd\n": refused("QOSMaxSubmit")}, "refused: QOSMaxSubmit", "grid file"),
    ({"SUBMIT None None 2 /share/check-abcd\n": "what?\n"}, "answered strangely", "sbatch or qsub"),
    (
        {
            "done": "",
            "LISTING": listing(
                job(
                    BatchState.PENDING,
                    reason="PartitionNodeLimit",
                    end=BatchEnd(kind=EndKind.SITE, reason="PartitionNodeLimit"),
                )
            ),
        },
        "did not end within 20 s: it is pending (PartitionNodeLimit); it was cancelled",
        "--patience",
    ),
    ({"done": ""}, "did not end within 20 s: it is not listed", "--patience"),
    (
        {
            "done": "",
            "/log": "",
            "LISTING": listing(job(BatchState.OVER, end=BatchEnd(kind=EndKind.ITSELF, exit_code=9))),
        },
        "ended (itself, exit code 9), but nothing of it is seen in /share",
        "share with the login host",
    ),
    (
        {"done": "", "/log": "no such file\n", "LISTING": listing(job(BatchState.OVER))},
        "ended and said: no such file",
        "mend what it says",
    ),
    (
        {"cat seen": ShellResult(code=0, stdout=b"n1 1 abcd\nn2 1 \n", stderr=b"koala check ran on n1\n")},
        "n2 does not see /share",
        "all nodes share",
    ),
    ({"cat seen": ShellResult(code=0, stdout=b"n1 1 abcd\n", stderr=b"")}, "not in its log", "submit_options"),
    ({"cat seen": refused("gone")}, "cannot be read: gone", "check again"),
]


@pytest.mark.parametrize(("reactions", "words", "advice"), JOBS, ids=[words for _, words, _ in JOBS])
def test_a_job_that_does_not_run_as_it_should_is_told_and_cleaned_up(
    reactions: dict[str, Reaction], words: str, advice: str
) -> None:
    found, site = played(reactions, run=True, asking_takes_s=3.0)
    assert found["job"].sign is FAILED
    assert words in found["job"].words
    assert advice in found["job"].advice
    assert site.scripts[-1] == "rm -rf -- /share/check-abcd\n"
    if "refused" not in words:
        assert any(text.startswith("CANCEL check-abcd") for text in site.scripts)


def test_a_job_that_only_waits_for_others_is_no_fault_of_the_site() -> None:
    waits = {"done": "", "LISTING": listing(job(BatchState.PENDING, reason="Resources"))}
    found, site = played(dict[str, Reaction](waits), run=True, asking_takes_s=3.0)
    assert found["job"].sign is WARNED
    assert "had to wait for more than 20 s: it is pending (Resources); it was cancelled" in found["job"].words
    assert "--patience" in found["job"].advice
    assert any(text.startswith("CANCEL check-abcd") for text in site.scripts)


# ------------------------------------------------------------------------------------------- file servers


@pytest.mark.parametrize(("greeting", "sign"), [(b"220 GridFTP ready\r\n", PASSED), (b"SSH-2.0\r\n", FAILED)])
def test_a_file_server_must_greet(greeting: bytes, sign: StepStatus) -> None:
    async def check() -> StepStatus:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(greeting)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return (await file_server_answers(f"ftp://127.0.0.1:{port}/files")).sign

    assert asyncio.run(check()) is sign


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1/x", "nonsense", "ftp://h:99999999/", "http://127.0.0.1/"])
def test_a_file_server_that_cannot_be_reached_must_be_mended(url: str) -> None:
    found, _ = played(file_server=url)
    assert found["files"].sign is FAILED
    assert "ftp://HOST:PORT/DIRECTORY" in found["files"].advice


def has_here(monkeypatch: pytest.MonkeyPatch, *programs: str) -> None:
    """Of the programs that move files this machine has these."""

    def which(program: str) -> str | None:
        return f"/usr/bin/{program}" if program in programs else None

    monkeypatch.setattr("koala.sites.batch.check.host.shutil.which", which)


def server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file server greets."""

    async def answers(url: str) -> StepResult:
        return StepResult(PASSED, f"{url} answers")

    monkeypatch.setattr("koala.sites.batch.check.host.file_server_answers", answers)


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        (False, True, "rsync is missing at far; files go in a stream, through this machine if need be"),
        (True, False, "rsync is missing at this machine; files go in a stream"),
        (False, False, "rsync is missing at far and at this machine; files go in a stream"),
        (True, True, "rsync is here and there"),
    ],
)
def test_without_rsync_files_still_go(monkeypatch: pytest.MonkeyPatch, there: bool, here: bool, words: str) -> None:
    has_here(monkeypatch, *(["rsync"] if here else []))
    found, _ = played({} if there else {"rsync": refused("")}, ssh="far")
    assert found["files"].sign is (PASSED if there and here else WARNED)
    assert words in found["files"].words
    assert ("install rsync" in found["files"].advice) is not (there and here)


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        (True, False, "globus-url-copy is there;"),
        (False, True, "globus-url-copy is here;"),
        (False, False, "neither"),
    ],
)
def test_a_file_server_needs_its_client_at_the_site_or_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, there: bool, here: bool, words: str
) -> None:
    server_answers(monkeypatch)
    has_here(monkeypatch, "rsync", *(["globus-url-copy"] if here else []))
    reactions: dict[str, Reaction] = {} if there else {"globus-url-copy": refused("")}
    found, _ = played(reactions, ssh="far", file_server="ftp://fs/x")
    assert found["files"].sign is (PASSED if there or here else FAILED)
    assert found["files"].words.startswith("ftp://fs/x answers")
    assert words in found["files"].words
    if there or here:
        assert "for sites without a file_server: rsync is here and there" in found["files"].words
    else:
        assert "globus-gass-copy-progs" in found["files"].advice
        assert "take file_server out" in found["files"].advice


def test_a_site_with_a_file_server_is_looked_at_for_rsync_too(monkeypatch: pytest.MonkeyPatch) -> None:
    server_answers(monkeypatch)
    has_here(monkeypatch, "rsync")
    found, _ = played({"rsync": refused("")}, ssh="far", file_server="ftp://fs/x")
    assert found["files"].sign is WARNED
    assert "for sites without a file_server: rsync is missing at far" in found["files"].words


# ------------------------------------------------------------------------------------ what programs print


@pytest.mark.parametrize("printed", ["", "garbage", "=", "PartitionName", "a=b c", "PartitionName=x TotalCPUs=many"])
def test_partitions_are_read_from_anything(printed: str) -> None:
    assert all(partition.processors == 0 for partition in parse_partitions(printed))


def test_queues_and_fields_are_read_from_anything() -> None:
    assert parse_queue_summary("a\nall.q 0.1 1 2 3\nall.q x y z 1 2 3 4\n") == {}
    assert parse_fields("a\n\nb  c d \\\n  e\n") == {"a": "", "b": "c d e"}


# ------------------------------------------------------------------------- sites without a batch system


KINDS = "'kind: cluster'"


def test_a_site_of_this_machine_is_short() -> None:
    machine = OwnMachine(processors=4, memory_bytes=2**30)
    found = list(check_own_site(Site(name="here", kind=SiteKind.LOCAL, processors=4), KINDS, machine))
    assert [(each.step, each.sign) for each in found] == [
        ("processors", PASSED),
        ("memory", PASSED),
        ("shell", PASSED),
    ]
    crowded, *_ = check_own_site(Site(name="here", kind=SiteKind.LOCAL, processors=5), KINDS, machine)
    assert crowded.sign is WARNED
    assert "'processors: 4'" in crowded.advice


def test_a_simulated_site_cannot_be_used() -> None:
    (found,) = check_own_site(Site(name="sim", processors=4), KINDS)
    assert found.sign is FAILED
    assert found.advice.endswith(f"'kind: local' for processors of this machine, or {KINDS}")
