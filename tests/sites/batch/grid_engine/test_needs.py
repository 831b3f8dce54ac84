"""Which resources our jobs ask Grid Engine for, and how many slots these leave."""

from __future__ import annotations

import math
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.model.grid import BatchSettings
from koala.sites.batch.grid_engine.needs import Want, amount_of, requests_of, slots_within, wants_of
from koala.sites.batch.grid_engine.system import GridEngineSystem
from koala.sites.batch.grid_engine.xml import Resource
from koala.sites.batch.system import BatchListing, BatchOutputError

COMPLEXES = """\
arch                a          STRING    ==    YES         NO         NONE     0
h_vmem              h_vmem     MEMORY    <=    YES         YES        0        0
lic                 li         INT       <=    YES         JOB        0        0
mem_free            mf         MEMORY    <=    YES         NO         0        0
scratch             scr        DOUBLE    <=    YES         YES        1.5      0
slots               s          INT       <=    YES         YES        1        1000
"""


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ((), {}),
        (("-l", "h_vmem=2G"), {"h_vmem": "2G"}),
        (("-l", "h_vmem=2G,lic=1", "-l", "h_vmem=3G"), {"h_vmem": "3G", "lic": "1"}),
        (("-l", "lic"), {"lic": "1"}),
        (("-soft", "-l", "lic=1", "-hard", "-l", "mf=1G"), {"mf": "1G"}),
        (("-l", "h_rt=60,slots=3"), {}),
        (("-l", "a b=1,$(x)=2,=3"), {}),
        (("-l",), {}),
    ],
)
def test_what_options_ask_for(options: tuple[str, ...], requests: dict[str, str]) -> None:
    assert requests_of(options) == requests


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("2", 2), ("2.5", 2.5), ("2G", 2 * 1024**3), ("2g", 2 * 1000**3), ("1.500K", 1536), ("1:0:30", 3630),
        ("infinity", math.inf), ("INFINITY", math.inf), ("-2.000G", -2 * 1024**3),
        ("", None), ("lx-amd64", None), ("2X", None), ("1:2:3:4", None), ("9" * 30, None), ("٣", None),
    ],
)  # fmt: skip
def test_amounts(text: str, amount: float | None) -> None:
    assert amount_of(text) == amount


def test_wants_are_those_asked_for_by_either_name_and_those_with_a_default() -> None:
    default = Want("scratch", 1.5, for_each_slot=True, is_default=True)
    assert wants_of(COMPLEXES, {}) == [default]
    asked = {"h_vmem": "1K", "li": "2", "mf": "3", "arch": "lx-amd64", "scr": "0", "unheard-of": "7"}
    assert wants_of(COMPLEXES, asked) == [
        Want("h_vmem", 1024, for_each_slot=True),
        Want("lic", 2, for_each_slot=False),
        Want("mem_free", 3, for_each_slot=False),
    ]
    assert wants_of(COMPLEXES, {"h_vmem": "lots", "lic": "infinity"}) == [default]


@pytest.mark.parametrize(
    ("want", "kind", "text", "slots"),
    [
        (Want("m", 2 * 1024**3, for_each_slot=True), "hc", "7.000G", 3),
        (Want("m", 2700 * 1024**2, for_each_slot=True), "hc", "7.910G", 3),  # 8100M
        (Want("m", 2 * 1024**3, for_each_slot=True), "hc", "-1.000G", 0),
        (Want("m", 2 * 1024**3, for_each_slot=True), "hl", "7.000G", 3),
        (Want("m", 2 * 1024**3, for_each_slot=True), "qf", "infinity", None),
        (Want("m", 2 * 1024**3, for_each_slot=True), "qf", "2.000G", None),
        (Want("m", 2 * 1024**3, for_each_slot=True), "qf", "1.000G", 0),
        (Want("m", 2, for_each_slot=False), "hc", "2", None),
        (Want("m", 2, for_each_slot=False), "hc", "1", 0),
        (Want("m", 2, for_each_slot=True), "hc", "what?", None),
    ],
)
def test_slots_that_a_resource_holds(want: Want, kind: str, text: str, slots: int | None) -> None:
    assert slots_within(want, Resource("m", kind, text)) == slots


# ---------------------------------------------------------------------------------------------------- in a listing

QUEUE = (
    "<Queue-List><name>{queue}@{host}</name><qtype>BP</qtype><slots_used>0</slots_used><slots_resv>0</slots_resv>"
    "<slots_total>8</slots_total>{resources}</Queue-List>"
)


def cell(
    *queues: tuple[str, str, dict[str, str]], hosts: str = "", complexes: str = COMPLEXES, resources: str = ""
) -> str:
    """A listing of queues of 8 slots: each with its host and its resources, by kind and name."""
    shown = "".join(
        QUEUE.format(
            queue=queue,
            host=host,
            resources="".join(
                f'<resource name="{key.partition(" ")[2]}" type="{key.partition(" ")[0]}">{value}</resource>'
                for key, value in found.items()
            ),
        )
        for queue, host, found in queues
    )
    offered = "\n".join(f"{queue}@{host}" for queue, host, _ in queues)
    parts = {
        "user": "me",
        "jobs": f"<job_info><queue_info>{shown}</queue_info><job_info></job_info></job_info>",
        "queues": offered,
        "environment": "",
        "quotas": "<qquota_result></qquota_result>",
        "errors": "",
        "complexes": complexes,
        "hosts": hosts or f"<qhost>{resources}</qhost>",
        "end": "",
    }
    return "".join(f"koala: {name}\n{text}\n" for name, text in parts.items())


def read(printed: str, *options: str) -> BatchListing:
    return GridEngineSystem(BatchSettings(work_directory="/w", submit_options=options)).parse_listing(printed)


def idle(printed: str, *options: str) -> int:
    told = read(printed, *options)
    return told.processors - told.others


FULL = {"hc h_vmem": "7.000G", "hc lic": "2", "hl mem_free": "5.000G"}


@pytest.mark.parametrize(
    ("request_text", "left"),
    [
        ("h_vmem=2G", 3 + 8),
        ("h_vmem=8G", 0 + 2),
        ("h_vmem=2G,lic=1", 3 + 8),
        ("lic=3", 0 + 8),
        ("mf=6G", 0 + 8),
        ("arch=lx-amd64", 8 + 8),
        ("h_vmem=lots", 8 + 8),
    ],
)
def test_free_slots_by_what_jobs_ask_for(request_text: str, left: int) -> None:
    empty = {"hc h_vmem": "16.000G", "hc lic": "9", "hl mem_free": "16.000G"}
    printed = cell(("a", "h1", FULL), ("a", "h2", empty))
    assert idle(printed, "-l", request_text) == left
    assert read(printed, "-l", request_text).processors == 16, "what there is if nobody is there is not told"


def test_what_a_host_has_is_shared_by_its_queues_and_what_a_queue_has_is_not() -> None:
    asked = ("-l", "h_vmem=2G")
    assert idle(cell(("a", "h1", FULL), ("b", "h1", FULL)), *asked) == 3
    of_queue = {"qc h_vmem": "7.000G"}
    assert idle(cell(("a", "h1", of_queue), ("b", "h1", of_queue)), *asked) == 6
    of_cell = {"gc h_vmem": "7.000G"}
    assert idle(cell(("a", "h1", of_cell), ("a", "h2", of_cell)), *asked) == 3


def test_a_limit_of_the_queue_does_not_hide_what_its_host_has_left() -> None:
    hosts = "<qhost><host name='h1'><resourcevalue name='h_vmem' dominance='hc'>7.000G</resourcevalue></host></qhost>"
    queue = ("a", "h1", {"qf h_vmem": "4.000G"})
    assert idle(cell(queue, hosts=hosts), "-l", "h_vmem=3G") == 2
    assert idle(cell(queue, hosts=hosts), "-l", "h_vmem=5G") == 0
    assert idle(cell(queue), "-l", "h_vmem=3G") == 8


def test_who_asks_for_what_is_not_there_gets_nothing_but_a_default_is_taken_only_where_there_is_some() -> None:
    assert idle(cell(("a", "h1", {})), "-l", "lic=1") == 0
    assert idle(cell(("a", "h1", {}))) == 8
    assert idle(cell(("a", "h1", {"hc scratch": "4.000000"}))) == 2
    assert idle(cell(("a", "h1", {"hc scratch": "4.000000"})), "-l", "scr=0") == 8


WORDS = st.sampled_from(
    ["h_vmem", "YES", "NO", "<=", "MEMORY", "0", "1G", "-1", "infinity", "hc", "", "\n", "=", ","]
)


@given(
    st.lists(WORDS | st.text(max_size=9), max_size=20).map(" ".join),
    st.lists(WORDS | st.sampled_from(["-l", "-soft"]), max_size=6),
    st.sampled_from(["hc", "qf", "", "x", "gl"]),
    st.sampled_from(["", "1", "-1", "1:0:0", "what", "infinity"]),
)
def test_garbage_takes_no_listing_away(complexes: str, options: list[str], kind: str, value: str) -> None:
    printed = cell(("a", "h1", {f"{kind} h_vmem": value}), complexes=complexes)
    try:
        told = read(printed, *options)
    except BatchOutputError:
        assert "koala: " in complexes
        return
    assert 0 <= told.others <= told.processors


@pytest.mark.parametrize(
    "hosts",
    [
        "<qhost><host name='h1'>",
        "warning: commlib\n<qhost></qhost>",
        "<other/>",
        "<qhost><host name='h1'><resourcevalue name='h_vmem' dominance='hc'>1G</resourcevalue></host>",
        "<qhost><host name='h1'><resourcevalue name='h_vmem' dominance='hc'>1G</resourcevalue></host><host>",
    ],
)
def test_hosts_that_make_no_sense_take_no_slot_away(hosts: str) -> None:
    printed = cell(("a", "h1", FULL), ("a", "h2", {"hc h_vmem": "99.000G"}), hosts=hosts)
    assert idle(printed, "-l", "h_vmem=2G") == 3 + 8


def test_what_waits_ahead_takes_what_is_free_also_where_our_jobs_could_not_get_as_much() -> None:
    job = (
        '<job_list state="pending"><JB_job_number>5</JB_job_number><JB_name>x</JB_name><JB_owner>you</JB_owner>'
        "<state>qw</state><slots>{}</slots></job_list>"
    )

    def left(waits: int) -> int:
        printed = cell(("a", "h1", FULL)).replace(
            "<job_info></job_info>", f"<job_info>{job.format(waits)}</job_info>"
        )
        return idle(printed, "-l", "h_vmem=2G")

    assert [left(waits) for waits in (6, 8, 9, 2)] == [2, 0, 3, 1]


# ------------------------------------------------------------------------------------------------ how it is asked


def printed_by(tmp_path: Path, *options: str, complexes: str = COMPLEXES) -> tuple[str, str]:
    """What the text prints of complexes, and the calls that it makes."""
    log = tmp_path / "log"
    log.write_text("")
    for name in ("qstat", "qselect", "qquota", "qhost", "qconf"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} \"$@\" >> '{log}'\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "complexes").write_text(complexes)
    with (tmp_path / "qconf").open("a") as qconf:
        qconf.write(f"cat '{tmp_path}/complexes'\n")
    text = GridEngineSystem(BatchSettings(work_directory="/w", submit_options=options)).listing()
    environment = {"PATH": f"{tmp_path}:{os.defpath}"}
    done = subprocess.run(["/bin/sh"], input=text, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.partition("koala: complexes\n")[2].partition("koala: hosts")[0], log.read_text()


def test_only_what_is_asked_for_and_what_has_a_default_is_looked_at(tmp_path: Path) -> None:
    plain = COMPLEXES.replace("1.5", "0.0")
    rows, calls = printed_by(tmp_path, complexes=plain)
    assert not rows.strip()
    assert "qhost" not in calls
    assert "qstat -F slots,h_rt -u * -r -xml" in calls
    others = plain + "hostname h HOST == YES NO NONE 0\nnap n INT >= YES NO 0 0\nword w STRING <= YES YES x 0\n"
    rows, calls = printed_by(tmp_path, "-l", "arch=lx-amd64,h=h1,nap=3", complexes=others)
    assert not rows.strip(), "they never count"
    assert "qhost" not in calls
    assert "qstat -F slots,h_rt -u * -r -xml" in calls
    rows, calls = printed_by(tmp_path, "-l", "mf=1G,h_vmem=2G")
    assert [row.split()[0] for row in rows.splitlines()] == ["h_vmem", "mem_free", "scratch"]
    assert "qhost -F h_vmem,mem_free,scratch -xml" in calls
    assert "qstat -F slots,h_rt,h_vmem,mem_free,scratch -u * -r -xml" in calls
