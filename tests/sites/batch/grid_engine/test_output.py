"""What Grid Engine prints, recorded from real cells and after other versions' documents, and as garbage."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.model.grid import Claims
from koala.model.nodes import UNTOLD, NodeClass, NodeSize
from koala.sites.batch.grid_engine import xml as grid_engine_xml
from koala.sites.batch.grid_engine.system import GridEngineSystem
from koala.sites.batch.system import (
    BatchEnd,
    BatchJob,
    BatchListing,
    BatchOutputError,
    BatchState,
    BatchSystem,
    EndKind,
)
from tests.support.batch_settings import batch_settings
from tests.support.paths import RECORDED

LISTINGS = sorted(path.name for path in RECORDED.glob("grid_engine_listing_*"))


def system(**settings: Any) -> BatchSystem:
    return GridEngineSystem(batch_settings("/shared/koala", **settings))


def recorded(name: str) -> str:
    """Without the comment at its head."""
    lines = (RECORDED / name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# "))


def listing(name: str, **settings: Any) -> BatchListing:
    return system(**settings).parse_listing(recorded(name))


def over(**tokens: str) -> list[BatchJob]:
    """Jobs of these ids and tokens."""
    return [BatchJob(id=name[1:], token=token, state=BatchState.OVER) for name, token in tokens.items()]


def test_our_jobs_are_told_from_those_of_others() -> None:
    seen = listing("grid_engine_listing_8.1.9_busy.txt", queue="all.q", parallel_environment="mpi")

    assert [(job.id, job.token, job.state, job.processors) for job in seen.jobs] == [
        ("43", "1.1-0123abcd", BatchState.ENDING, 2),
        ("44", "1.2-0123abcd", BatchState.RUNNING, 1),
        ("41", "2.1-0123abcd", BatchState.PENDING, 1),
        ("51", "3.1-0123abcd", BatchState.HELD, 2),
    ]
    assert (seen.processors, seen.others) == (4, 1)


def test_jobs_of_others_tell_when_they_reach_their_time_limit() -> None:
    text = recorded("grid_engine_listing_8.1.9_busy.txt")
    assert system().parse_listing(text).releases == (), "only ours asked for a limit, and the queue has none"
    started_at = datetime(2026, 11, 15, 11, 54, 45, tzinfo=UTC).timestamp()
    own = "<slots>1</slots>", '<slots>1</slots><hard_request name="h_rt">1:00:00</hard_request>'
    asked = text.replace(*own, 1)
    assert system().parse_listing(asked).releases == ((started_at + 3_600, 1),)
    queue = 'name="h_rt" type="qf">infinity', 'name="h_rt" type="qf">0:30:00'
    assert system().parse_listing(text.replace(*queue)).releases == ((started_at + 1_800, 1),)
    assert system().parse_listing(asked.replace(*queue)).releases == ((started_at + 1_800, 1),)
    for before, after in (("1:00:00", "soon"), ("2026-11-15T11:54:45", "2026-99-15T11:54:45")):
        assert system().parse_listing(asked.replace(before, after)).releases == ()


def test_a_job_in_error_will_never_start_and_says_why() -> None:
    seen = listing("grid_engine_listing_8.1.9_busy.txt")

    (failed,) = [job for job in seen.jobs if job.id == "41"]
    assert failed.end is not None
    assert failed.end.kind is EndKind.SITE
    assert failed.end.reason.endswith("error: can't chdir to /nonexist: No such file or directory")


def test_what_waits_ahead_counts_as_the_others() -> None:
    """Two slots are free, and the first in the queue wants three: Grid Engine passes it by for the next two."""
    text = recorded("grid_engine_listing_8.1.9_busy.txt")
    text = text.replace("<slots_used>4</slots_used>", "<slots_used>2</slots_used>")
    text = text.replace('<resource name="slots" type="hc">0<', '<resource name="slots" type="hc">2<')
    begin = text.index("<job_list")
    begin = text.index("<job_list", begin + 1)
    end = text.index("</job_list>", begin) + len("</job_list>")

    seen = system().parse_listing(text[:begin] + text[end:])

    assert [job.token for job in seen.jobs if job.state is BatchState.RUNNING] == ["1.2-0123abcd"]
    assert (seen.processors, seen.others) == (4, 3)


def test_a_job_over_several_hosts_is_one_and_hosts_share_slots_between_queues() -> None:
    """Three of each host's slots serve both queues; a job of another queue takes one of them."""
    seen = listing("grid_engine_listing_8.1.9_hosts.txt", queue="all.q")

    assert [(job.token, job.processors) for job in seen.jobs] == [("2.1-0123abcd", 4)]
    assert (seen.processors, seen.others) == (6, 1)


def test_a_job_of_ours_that_runs_in_no_queue_is_seen() -> None:
    text = recorded("grid_engine_listing_8.1.9_hosts.txt")
    begin, end = text.index("<job_list"), text.index("</job_list>") + len("</job_list>")
    job = text[begin:end].replace("2.1-0123abcd", "9.9-0123abcd").replace(">6<", ">66<")
    text = text.replace("<job_info>\n", f"<job_info>\n{job}\n")

    seen = system().parse_listing(text)

    assert [(each.token, each.state) for each in seen.jobs] == [
        ("2.1-0123abcd", BatchState.RUNNING),
        ("9.9-0123abcd", BatchState.RUNNING),
    ]


def test_slots_of_a_host_that_is_down_are_not_there() -> None:
    """Beyond what runs on the host that is left there is only what our own job has on the other one."""
    seen = listing("grid_engine_listing_8.1.9_down.txt", queue="all.q")

    assert [(job.token, job.state, job.processors) for job in seen.jobs] == [("2.1-0123abcd", BatchState.RUNNING, 4)]
    assert (seen.processors, seen.others) == (4, 0)


@pytest.mark.parametrize("state", ["d", "u", "au", "a", "A", "s", "S", "E", "c", "o", "D", "C", "P"])
def test_a_queue_in_any_state_offers_nothing(state: str) -> None:
    text = recorded("grid_engine_listing_6.2u5.txt")
    text = text.replace("<load_avg>2.01000</load_avg>", f"<state>{state}</state>")

    seen = system().parse_listing(text)

    assert (seen.processors, seen.others) == (8, 3)


def test_a_job_of_ours_in_a_queue_that_takes_no_more_hides_nobody() -> None:
    """Four slots of a disabled queue are ours; of the eight others two are in use, and three will be."""
    text = recorded("grid_engine_listing_6.2u5.txt")
    text = text.replace("<load_avg>3.97000</load_avg>", "<state>d</state>")

    seen = system().parse_listing(text)

    assert (seen.processors, seen.others) == (12, 5)


def test_a_quota_bounds_what_can_be_had() -> None:
    """Of four slots our user may have three, and has two."""
    seen = listing("grid_engine_listing_8.1.9_quota.txt")

    assert (seen.processors, seen.others) == (3, 0)


@pytest.mark.parametrize(
    ("rule", "settings", "expected"),
    [
        ("<queues>other.q</queues>", {"queue": "all.q"}, 4),
        ("<queues>all.q</queues>", {"queue": "all.q"}, 3),
        ("<queues>all.q</queues>", {}, 4),
        ("<queues>*</queues>", {}, 3),
        ("<projects>physics</projects>", {}, 4),
        ("<projects>physics</projects>", {"account": "physics"}, 3),
        ("<pes>mpi</pes>", {}, 4),
        ("<hosts>vm</hosts>", {}, 3),
        ("<hosts>elsewhere</hosts>", {}, 4),
    ],
)
def test_a_quota_of_others_bounds_nothing(rule: str, settings: dict[str, str], expected: int) -> None:
    text = recorded("grid_engine_listing_8.1.9_quota.txt").replace("<users>root</users>", rule)

    assert system(**settings).parse_listing(text).processors == expected


@pytest.mark.parametrize(
    ("claims", "others"),
    [
        (Claims.BARRIER, 1),  # our job is not in the reservation of one slot
        (Claims.RESERVATION, 0),  # it may be
    ],
)
def test_reserved_slots_are_not_free(claims: Claims, others: int) -> None:
    text = recorded("grid_engine_listing_8.1.9_quota.txt").replace("limit='3'", "limit='9'")

    seen = system(claims=claims).parse_listing(text)

    assert (seen.processors, seen.others) == (4, others)


def test_version_6_2_is_understood() -> None:
    """Eight slots of each of two hosts; two are in use by others, who also wait for three."""
    seen = listing("grid_engine_listing_6.2u5.txt")

    assert [(job.id, job.token, job.state) for job in seen.jobs] == [
        ("4711", "17.1-3fa9c1d2", BatchState.RUNNING),
        ("4721", "18.2-3fa9c1d2", BatchState.PENDING),
    ]
    assert (seen.processors, seen.others) == (16, 5)
    assert seen.job_limit_s == 48 * 3600.0


def test_univa_is_understood_and_the_environment_bounds_what_can_be_had() -> None:
    """Of sixteen slots the environment has twelve. Others wait for two of this queue, and for some of another."""
    seen = listing("grid_engine_listing_univa_8.6.txt", queue="batch.q", parallel_environment="mpi")

    assert [(job.id, job.token, job.processors) for job in seen.jobs] == [("90001", "5.1-3fa9c1d2", 2)]
    assert (seen.processors, seen.others) == (12, 2)
    assert seen.job_limit_s == 24 * 3600.0


def test_a_queue_without_a_limit_has_none() -> None:
    assert listing("grid_engine_listing_8.1.9_busy.txt").job_limit_s is None


@pytest.mark.parametrize("name", LISTINGS)
def test_half_a_listing_tells_nothing(name: str) -> None:
    """Cut anywhere, also between its parts."""
    text = recorded(name).rstrip("\n")
    lines = text.split("\n")
    for count in range(len(lines)):
        with pytest.raises(BatchOutputError):
            system().parse_listing("\n".join(lines[:count]))
    assert isinstance(system().parse_listing(text), BatchListing)


def test_a_listing_with_a_document_type_is_refused() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;&b;&b;">]>'
    text = recorded("grid_engine_listing_8.1.9_busy.txt").replace("<job_info  xmlns", bomb + "<job_info  xmlns")

    with pytest.raises(BatchOutputError, match="document type"):
        system().parse_listing(text)


def test_a_listing_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = recorded("grid_engine_listing_8.1.9_busy.txt")
    monkeypatch.setattr(grid_engine_xml, "GRID_ENGINE_XML_CHARACTERS_MAX", len(text) // 2)

    with pytest.raises(BatchOutputError, match="GRID_ENGINE_XML_CHARACTERS_MAX"):
        system().parse_listing(text)


def test_a_name_that_xml_may_not_hold_hides_nothing() -> None:
    text = recorded("grid_engine_listing_8.1.9_busy.txt").replace("local<", "lo\x01\x1bcal\udc80<")

    assert len(system().parse_listing(text).jobs) == 4


def test_ends_are_told() -> None:
    jobs = over(j9="short", j10="seg", j11="rt", j41="2.1-0123abcd", j13="trap", j7777="gone")

    ends = system().parse_history(recorded("grid_engine_qacct_8.1.9.txt"), jobs)

    assert {job: (end.kind, end.exit_code) for job, end in ends.items()} == {
        "9": (EndKind.ITSELF, 3),
        "10": (EndKind.ITSELF, 139),
        "11": (EndKind.TIME_LIMIT, 137),
        "41": (EndKind.SITE, None),
        "13": (EndKind.CANCELLED, 137),
    }
    assert ends["41"].reason == "failed 28  : changing into working directory"


def test_a_record_of_another_job_with_the_same_number_is_none_of_ours() -> None:
    ends = system().parse_history(recorded("grid_engine_qacct_8.1.9.txt"), over(j9="another"))

    assert ends == {}


@pytest.mark.parametrize("reverse", [False, True])
def test_a_process_on_another_node_is_not_the_job(reverse: bool) -> None:
    records = recorded("grid_engine_qacct_8.1.9_nodes.txt").removesuffix("koala: end\n").split("=" * 62 + "\n")
    text = ("=" * 62 + "\n").join(reversed(records) if reverse else records)

    ends = system().parse_history(f"{'=' * 62}\n{text}koala: end\n", over(j9="4.1-0123abcd", j6="2.1-0123abcd"))

    assert ends["9"] == BatchEnd(kind=EndKind.ITSELF, exit_code=0)
    # Grid Engine says "failed 0, exit_status 0" of a job that was deleted by force.
    assert ends["6"].kind is EndKind.CANCELLED


def test_univa_tells_who_deleted_a_job() -> None:
    jobs = over(j90001="5.1-3fa9c1d2", j90002="5.2-3fa9c1d2", j90003="5.3-3fa9c1d2")

    ends = system().parse_history(recorded("grid_engine_qacct_univa_8.6.txt"), jobs)

    assert ends == {
        "90001": BatchEnd(kind=EndKind.CANCELLED, exit_code=137, reason="deleted by root@head.example"),
        "90002": BatchEnd(kind=EndKind.TIME_LIMIT, exit_code=137, reason="failed 100 : assumedly after job"),
    }


def test_half_a_history_tells_nothing() -> None:
    text = recorded("grid_engine_qacct_8.1.9.txt")

    with pytest.raises(BatchOutputError):
        system().parse_history(text[: len(text) // 2], over(j9="short"))


PIECES = st.sampled_from(
    [
        piece
        for name in LISTINGS
        for line in recorded(name).splitlines(keepends=True)
        for piece in (line, line.strip())
    ]
)
GARBAGE = st.one_of(st.text(), st.lists(st.one_of(PIECES, st.text(max_size=5))).map("".join))


@given(GARBAGE)
def test_garbage_is_a_listing_or_an_error(printed: str) -> None:
    try:
        seen = system(parallel_environment="mpi").parse_listing(printed)
    except BatchOutputError:
        return
    assert 0 <= seen.others <= seen.processors


@given(name=st.sampled_from(LISTINGS), data=st.data())
def test_a_spoilt_listing_is_a_listing_or_an_error(name: str, data: st.DataObject) -> None:
    text = recorded(name)
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 40)))
    spoilt = text[:begin] + data.draw(st.one_of(st.text(max_size=20), PIECES)) + text[end:]
    try:
        seen = system(queue="all.q").parse_listing(spoilt)
    except BatchOutputError:
        return
    assert 0 <= seen.others <= seen.processors


@given(st.data())
def test_a_spoilt_history_is_ends_or_an_error(data: st.DataObject) -> None:
    text = recorded("grid_engine_qacct_8.1.9.txt")
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 40)))
    jobs = over(j9="short", j10="seg")
    try:
        ends = system().parse_history(text[:begin] + data.draw(st.text(max_size=20)) + text[end:], jobs)
    except BatchOutputError:
        return
    assert set(ends) <= {"9", "10"}


# ------------------------------------------------------------------------------------------ nodes for shaped tasks

MIB = 2**20
COMPLEXES = {"memory_complex": "h_vmem", "gpu_complex": "gpu", "gpu_kind_complex": "gt"}


def nodes(text: str, **settings: Any) -> list[NodeClass]:
    return list(system(**settings).parse_listing(text).nodes)


def test_a_host_has_what_is_left_of_its_consumables_and_what_jobs_asked_for() -> None:
    """Two slots have the default of 100M each; the third has a GPU and 1000M."""
    text = recorded("grid_engine_listing_8.1.9_gpus.txt")
    free, whole = NodeSize(1, 6900 * MIB, (("a100", 1),)), NodeSize(4, 8100 * MIB, (("a100", 2),))
    assert nodes(text, **COMPLEXES) == [NodeClass(1, whole, free)]
    plain = NodeSize(4, UNTOLD, counts_memory=False)
    assert nodes(text) == [NodeClass(1, plain, plain._replace(processors=1))], "the grid file names no consumable"


def test_where_memory_is_no_consumable_a_host_tells_how_much_it_has_and_nobody_takes_any() -> None:
    text = recorded("grid_engine_listing_8.1.9_gpus.txt")
    told = "<resourcevalue name='mem_total' dominance='hl'>23.500G</resourcevalue>"
    here = text.replace("<resourcevalue name='h_vmem'", f"{told}<resourcevalue name='h_vmem'")
    (found,) = nodes(here)
    assert found.whole.memory_bytes // MIB in (24_064, 24_064 + 1), "what is printed is rounded"
    assert found.free == found.whole._replace(processors=1)
    assert not found.whole.counts_memory


def test_what_is_not_named_not_consumable_or_nowhere_is_not_there() -> None:
    text = recorded("grid_engine_listing_8.1.9_gpus.txt")

    def free(text: str, **settings: Any) -> NodeSize:
        (found,) = nodes(text, **settings)
        return found.free

    assert free(text, memory_complex="h_vmem") == NodeSize(1, 6900 * MIB)
    assert free(text, gpu_complex="gpu") == NodeSize(1, UNTOLD, (("", 1),), counts_memory=False)
    load = text.replace("YES         YES        100M", "YES         NO         100M")
    assert free(load, **COMPLEXES) == NodeSize(1, UNTOLD, (("a100", 1),), counts_memory=False)
    nowhere = "\n".join(line for line in text.splitlines() if "'gpu'" not in line and '"gpu" type' not in line)
    assert free(nowhere, **COMPLEXES) == NodeSize(1, 6900 * MIB)
    unbound = text.replace(">6.738G<", ">infinity<")
    assert free(unbound, **COMPLEXES) == NodeSize(1, UNTOLD, (("a100", 1),))
    negative = text.replace(">6.738G<", ">-1.000G<")
    assert free(negative, **COMPLEXES) == NodeSize(0, 0, (("a100", 1),))


def test_what_only_a_queue_has_is_that_of_its_hosts() -> None:
    text = recorded("grid_engine_listing_8.1.9_gpus.txt").replace('name="gpu" type="hc"', 'name="gpu" type="qc"')
    text = "\n".join(line for line in text.splitlines() if "resourcevalue name='gpu'" not in line)
    (found,) = nodes(text, **COMPLEXES)
    assert (found.whole.gpus, found.free.gpus) == ((("a100", 2),), (("a100", 1),))


def test_what_a_job_uses_up_counts_once() -> None:
    text = recorded("grid_engine_listing_8.1.9_gpus.txt")
    for before, after in (
        ("gpu        INT         <=    YES         YES", "gpu        INT         <=    YES         JOB"),
        ('name="card" resource_contribution="0.000000">1<', 'name="gpu" resource_contribution="0.000000">2<'),
    ):
        text = text.replace(before, after)
    (found,) = nodes(text, **COMPLEXES)
    assert found.whole.gpus == (("a100", 1 + 1 + 2),)
