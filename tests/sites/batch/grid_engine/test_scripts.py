"""Grid Engine's commands: the words that are submitted, and what its answers to them mean."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.model.launch import Launch
from koala.model.nodes import TaskNeeds
from koala.model.request import Application
from koala.sites.batch.grid_engine.system import REASON_CHARACTERS_MAX, GridEngineSystem
from koala.sites.batch.system import BatchOutputError, BatchSubmission, BatchSystem, WantedReservation
from koala.sites.shell_script import shell_file
from tests.support.batch_settings import batch_settings

TOKEN = "1.1"  # noqa: S105
HOME = "/shared/koala/components/1.1"

NO_QMASTER = """error: commlib error: got select error (Connection refused)
Unable to run job: unable to send message to qmaster using port 21999 on host "vm": got send error
Exiting.
"""


def system(**settings: Any) -> BatchSystem:
    return GridEngineSystem(batch_settings("/shared/koala", **settings))


def submission(processors: int = 1, **fields: Any) -> BatchSubmission:
    launch = Launch(token=TOKEN, job=1, processors=processors, application=Application(script="exit 0"))
    return BatchSubmission(**{"launch": launch, "home": HOME, "script": "script", "log": "log", **fields})


def words(text: str) -> list[str]:
    """Those of the last command."""
    return shlex.split(text.rstrip("\n").rpartition("\n")[2])


def options(text: str) -> dict[str, str]:
    given = words(text)[:-1]
    return {name: value for name, value in itertools.pairwise(given) if name.startswith("-")}


def test_a_component_is_kept_off_nodes() -> None:
    launch = msgspec.structs.replace(submission().launch, exclude_nodes=("n1", "n2.site"))
    given = options(system().submit(submission(launch=launch)))
    assert (given["-l"], given["-w"]) == ("hostname=!(n1|n2.site)", "e")


def test_licences_are_asked_for_where_a_component_holds_some() -> None:
    launch = msgspec.structs.replace(submission().launch, licenses=(("ansys", 2), ("matlab", 1)))
    assert options(system().submit(submission(launch=launch)))["-l"] == "ansys=2,matlab=1"


def test_a_component_is_submitted_as_a_file_under_its_token() -> None:
    text = system().submit(submission(limit_s=90.2))

    assert words(text)[0] == "qsub"
    assert words(text)[-1] == f"{HOME}/script"
    given = options(text)
    assert given["-N"] == "koala-1.1"
    assert given["-A"] == "1.1"
    assert given["-wd"] == HOME
    assert given["-o"] == f":{HOME}/log"
    assert given["-l"] == "h_rt=91"
    assert given["-b"] == "n"
    assert given["-r"] == "n"
    # Lines of the application's text that look like options are none.
    assert given["-C"] == ""
    assert "-pe" not in given
    assert "-q" not in given


@pytest.mark.parametrize(("processors", "reservation", "waits"), [(1, None, None), (8, None, "y"), (8, "17", None)])
def test_a_wide_component_has_processors_kept_for_it_while_it_waits(
    processors: int, reservation: str | None, waits: str | None
) -> None:
    launch = msgspec.structs.replace(submission().launch, processors=processors)
    text = system(parallel_environment="mpi").submit(submission(launch=launch, reservation=reservation))
    assert options(text).get("-R") == waits


def test_queue_project_environment_and_further_options_come_from_the_settings() -> None:
    site = system(
        queue="all.q", account="physics", parallel_environment="mpi", submit_options=("-l", "gpu=1", "-ac", "a=b c")
    )

    text = site.submit(submission(processors=4))

    assert options(text)["-q"] == "all.q"
    assert options(text)["-P"] == "physics"
    assert words(text)[-8:] == ["-pe", "mpi", "4", "-l", "gpu=1", "-ac", "a=b c", f"{HOME}/script"]


def test_what_tasks_need_is_asked_for_last_and_must_be_there() -> None:
    site = system(memory_complex="h_vmem", gpu_complex="gpu", gpu_kind_complex="gt", submit_options=("-l", "gpu=9"))
    launch = msgspec.structs.replace(
        submission(processors=2).launch, needs=TaskNeeds(memory_bytes=2**30, gpus=1, gpu="a100")
    )
    text = site.submit(submission(launch=launch))
    assert words(text)[-9:-1] == ["-l", "gpu=9", "-w", "e", "-l", "gt=a100", "-l", "$koala_needs"]
    assert "koala_needs=$(koala_task_requests 2 1 h_vmem=1073741824 gpu=1) &&\n" in text
    assert "-w" not in words(site.submit(submission(processors=2)))


ROWS = """\
#name shortcut type relop requestable consumable default urgency
h_vmem hv MEMORY <= YES YES 0 0
gpu g INT <= YES YES 0 0
card cd INT <= YES JOB 0 0
part pt DOUBLE <= YES YES 0 0
mem_free mf MEMORY <= YES NO 0 0
slots_left sl INT <= YES NO 0 0
"""


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("3 1 h_vmem=1000 gpu=2", "h_vmem=1000,gpu=2"),
        ("1 4 hv=1001 gpu=8", "h_vmem=251,gpu=2"),
        ("1 1 h_vmem=1000000000000000000", "h_vmem=1000000000000000000"),
        ("1 4 card=1", "card=1"),
        ("2 4 part=1", "part=0.250000"),
        ("2 1 card=1", "card of 2 tasks cannot be asked for here: a job uses it up at one node alone"),
        ("1 4 gpu=1", "1 gpu for a task of 4 processors cannot be asked for here: each slot uses it up"),
        ("1 4 mem_free=5", "mem_free=5"),
        ("1 1 slots_left=5", "slots_left cannot be asked for here: it is not consumable"),
        ("1 1 gpus=5", "there is no resource gpus here"),
    ],
)
def test_tasks_are_asked_for_by_slots_and_by_jobs(tmp_path: Path, words: str, printed: str) -> None:
    (tmp_path / "qconf").write_text(f"#!/bin/sh\ncat <<'END'\n{ROWS}END\n")
    (tmp_path / "qconf").chmod(0o755)
    text = f"{shell_file('koala.sites.batch.grid_engine', 'needs.sh')}koala_task_requests {words}\n"
    environment = {"PATH": f"{tmp_path}:{os.defpath}"}
    done = subprocess.run(["/bin/sh"], input=text, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        assert done.stdout == printed
    else:
        assert printed in done.stderr
        refusal = system().refusal(done.returncode, "", done.stderr)
        assert refusal is not None
        assert system().is_for_what_it_asks(refusal) == ("cannot be asked for" in printed)


def test_one_processor_takes_the_environment_of_the_settings_too() -> None:
    assert words(system(parallel_environment="mpi").submit(submission()))[-4:-1] == ["-pe", "mpi", "1"]


def test_a_job_in_a_reservation_has_no_limit_of_its_own() -> None:
    text = system().submit(submission(limit_s=90, reservation="7"))

    assert options(text)["-ar"] == "7"
    assert "-l" not in options(text)


def test_every_script_is_one_that_sh_can_read() -> None:
    site = system(queue="a b'c", parallel_environment=None)
    texts = [
        site.submit(submission(processors=3)),
        site.cancel("1.1", ["5"]),
        site.listing(),
        site.history([]),
        site.on_node(),
        site.reserve(WantedReservation("koala-1.1", 3, 10.0, 20.0)),
        site.unreserve("koala-1.1"),
        site.version(),
    ]

    for text in texts:
        assert text.endswith("\n")
        done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_id_is_found_behind_warnings() -> None:
    assert system().parse_submitted("warning: the queue is slow\n4711\n") == "4711"


@pytest.mark.parametrize("printed", ["", "Your job 4711", "4711.1-10:3", "47\n48\n", "0", "-5", "\uff15"])
def test_what_is_not_an_id_is_none(printed: str) -> None:
    with pytest.raises(BatchOutputError):
        system().parse_submitted(printed)


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (1, 'Unable to run job: job rejected: the requested parallel environment "nope" does not exist\nExiting.'),
        (1, 'Unable to run job: Job was rejected because job requests unknown queue "nope"\nExiting.'),
        (1, 'Unable to run job: job rejected: the requested project "nope" does not exist\nExiting.'),
        (1, 'Unable to run job: unknown resource "nope"\nExiting.'),
        (1, "Unable to run job: the advance reservation id 99 is invalid\nExiting."),
        (1, "Unable to run job: error: no suitable queues\nExiting."),
        (1, 'Unable to run job: denied: host "here" is no submit host.\nExiting.'),
        (1, "no parallel environment defined"),
        (2, 'qsub: invalid option argument "-bad"'),
        (127, "sh: 1: qsub: not found"),
    ],
)
def test_a_refusal_for_good_is_told_in_the_words_of_the_batch_system(code: int, complaint: str) -> None:
    assert system().refusal(code, "", complaint) == " ".join(complaint.split()).removesuffix(" Exiting.")


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (1, NO_QMASTER),
        (1, "Unable to run job: Error reading answer list from qmaster\nExiting."),
        (
            25,
            "Unable to run job: job rejected: Only 100 jobs are allowed per user (current job count: 100)\nExiting.",
        ),
        (1, "Unable to run job: job rejected: Only 100 jobs are allowed per user (current job count: 100)\nExiting."),
        (14, "Unable to read script file because of error: error opening script: No such file or directory"),
        (1, ""),
        (137, "Killed"),
        (0, "Unable to run job: rejected"),
    ],
)
def test_what_may_pass_is_no_refusal(code: int, complaint: str) -> None:
    assert system().refusal(code, "", complaint) is None


def test_a_long_complaint_is_cut() -> None:
    reason = system().refusal(2, "", "denied " * 10_000)

    assert reason is not None
    assert len(reason) == REASON_CHARACTERS_MAX


@pytest.mark.parametrize("printed", ["Your advance reservation 12 has been granted\n", "12\n"])
def test_a_reservation_is_known_by_its_id(printed: str) -> None:
    assert system().parse_reserved(printed) == "12"


def test_what_is_no_reservation_is_none() -> None:
    with pytest.raises(BatchOutputError):
        system().parse_reserved("denied\n")


def test_nodes_come_from_the_host_file_with_the_own_one_first(tmp_path: Any) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("n2 2 all.q@n2 UNDEFINED\nn1 3 all.q@n1 UNDEFINED\nn1 1 short.q@n1 UNDEFINED\n")
    environment = {"PATH": "/usr/bin:/bin", "PE_HOSTFILE": str(hosts), "HOSTNAME": "n1"}
    text = system().on_node() + "koala_nodes\n"

    done = subprocess.run(["sh"], input=text, text=True, capture_output=True, env=environment)

    assert done.stdout == "n1 4\nn2 2\n"


def test_a_job_without_a_host_file_has_the_one_node() -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOSTNAME": "n1", "NSLOTS": "1"}
    text = system().on_node() + "koala_nodes\nkoala_on_node n1 printf '%s|' 'a  b' \"it's\"\n"

    done = subprocess.run(["sh"], input=text, text=True, capture_output=True, env=environment)

    assert done.stdout == "n1 1\na  b|it's|"
