"""What is recorded is read back: row by row, by every question that the store answers."""

from __future__ import annotations

import msgspec
import pytest
from sqlalchemy import text

from koala.core.life.states import JobState
from koala.model.facts import JobEnded
from koala.model.messages import AbortComponent, JobOutcome, ReleaseBarrier, TransferEnded
from koala.store import Batch, ChosenJobs, Store, queries
from koala.store.rows import StoryRows
from tests.support.past_the_store import engine_of
from tests.support.store_samples import (
    REQUEST,
    component_row,
    entry,
    file_entry,
    job_row,
    reported,
    started,
    submitted,
    tick,
    token_row,
    transfer_row,
)

FAR = 10**30
ONCE = "submitted once"
FIRST = "1.1"


def ids(store: Store, **question: object) -> list[int]:
    return [row.id for row in store.jobs(**question)]  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------- jobs


def test_a_job_is_read_back_as_it_was_recorded(store: Store) -> None:
    whole = job_row(
        7,
        state="failed",
        started_at=11.5,
        ended_at=12.25,
        reason="exit code 3",
        exit_code=3,
        places=(("delft", 3), ("leiden", 1)),
        runs=2,
        failures=1,
        preemptions=4,
        placement_tries=5,
        claiming_tries=6,
        client_token=ONCE,
        explanation={"job": 7, "story": [{"at": 10.0, "text": "submitted"}], "refusal": None},
    )
    store.record(Batch(jobs=(whole, job_row(8))))
    assert store.job(7) == whole
    assert store.job(8) == job_row(8)
    assert store.job(9) is None
    assert store.job(FAR) is None


def test_a_row_replaces_the_one_of_the_same_job(store: Store) -> None:
    store.record(Batch(jobs=(job_row(1),)))
    store.record(
        Batch(jobs=(job_row(1, state=JobState.PLACED), job_row(1, state=JobState.RUNNING, places=(("delft", 4),))))
    )
    assert store.job(1) == job_row(1, state="running", places=(("delft", 4),))
    assert store.counts() == {"running": 1}


def test_equal_requests_are_stored_once_and_stay_when_a_job_changes(store: Store, url: str) -> None:
    other = msgspec.structs.replace(REQUEST, name="other")
    entries = (submitted(1, 1), submitted(2, 2), submitted(3, 3, other))
    store.record(Batch(entries=entries, jobs=tuple(job_row(number) for number in (1, 2, 3))))
    store.record(Batch(jobs=(job_row(1, state=JobState.PLACED), job_row(4))))
    assert [store.request(number) for number in (1, 2, 3, 4, FAR)] == [REQUEST, REQUEST, other, None, None]
    store.close()
    engine = engine_of(url)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM requests")) == 2
    engine.dispose()


def test_jobs_come_newest_first_in_pages(store: Store) -> None:
    store.record(Batch(jobs=tuple(job_row(number) for number in range(1, 8))))
    assert ids(store, limit=3) == [7, 6, 5]
    assert ids(store, limit=3, before=5) == [4, 3, 2]
    assert ids(store, limit=3, before=2) == [1]
    assert ids(store, before=1) == []
    assert ids(store, before=FAR, limit=1) == [7]
    assert ids(store, before=-FAR) == []


def test_jobs_are_found_by_owner_and_by_states(store: Store) -> None:
    states = ["waiting", "running", "done"]
    rows = [job_row(number, owner="ab"[number % 2], state=states[number % 3]) for number in range(1, 13)]
    store.record(Batch(jobs=tuple(rows)))

    def expected(owner: str | None, wanted: set[str], before: int, limit: int) -> list[int]:
        fit = [
            row.id
            for row in rows
            if row.id < before and (owner is None or row.owner == owner) and (not wanted or row.state in wanted)
        ]
        return sorted(fit, reverse=True)[:limit]

    for owner in (None, "a", "b", "nobody"):
        for wanted in (set(), {"done"}, {"waiting", "done"}, {"waiting", "running", "done"}, {"lost"}):
            for before, limit in ((13, 100), (13, 2), (9, 2)):
                found = ids(store, owner=owner, states=wanted, before=before, limit=limit)
                assert found == expected(owner, wanted, before, limit)


def test_jobs_are_found_by_name_by_the_beginning_of_it_and_by_when_they_were_submitted(store: Store) -> None:
    names = ["sweep", "sweep-1", "Sweep", "s%eep", "\\", "\\ud800x", "\0", "漢字 1", "漢", "*", "sweep*"]
    rows = [
        job_row(number, name=name, submitted_at=100.0 + number, state="done" if number % 2 else "waiting")
        for number, name in enumerate(names, start=1)
    ]
    store.record(Batch(jobs=tuple(rows)))
    times = (None, 103.0, 103.5, 200.0)
    wanted = ["", *names, *(f"{name}*" for name in names), "swee*", "s%*", "漢*", "none"]
    for which in [ChosenJobs(name, begin, end) for name in wanted for begin in times for end in times]:
        fit = [row.id for row in reversed(rows) if which.has(row)]
        assert ids(store, which=which) == fit
        assert ids(store, which=which, states={"done"}) == [number for number in fit if number % 2]
    assert ids(store, which=ChosenJobs("swee*")) == [11, 2, 1]
    assert ids(store, which=ChosenJobs("sweep")) == [1]
    assert ids(store, which=ChosenJobs("", 103.0, 105.0)) == [4, 3]


def test_a_client_token_belongs_to_its_owner(store: Store) -> None:
    store.record(Batch(jobs=(job_row(1, owner="ann", client_token=ONCE), job_row(2, owner="bob", client_token=ONCE))))
    store.record(Batch(jobs=(job_row(3), job_row(4))))
    found = store.job_by_client_token("bob", ONCE)
    assert found is not None
    assert found.id == 2
    assert store.job_by_client_token("bob", "y") is None
    assert store.job_by_client_token("cas", ONCE) is None


def test_jobs_are_counted_by_state(store: Store) -> None:
    assert store.counts() == {}
    store.record(Batch(jobs=(job_row(1), job_row(2), job_row(3, state="done"))))
    assert store.counts() == {"done": 1, "waiting": 2}


def test_jobs_of_one_owner_are_counted_by_state(store: Store) -> None:
    states = ["waiting", "done", "done"]
    rows = [job_row(number, owner="ab"[number % 2], state=states[number % 3]) for number in range(1, 13)]
    store.record(Batch(jobs=tuple(rows)))
    assert store.counts("a") == store.counts("b") == {"done": 4, "waiting": 2}
    assert store.counts("c") == {}
    assert store.counts() == {"done": 8, "waiting": 4}


# ------------------------------------------------------------------------------- components and transfers


def test_a_component_is_read_back_as_it_was_recorded(store: Store) -> None:
    whole = component_row(
        "1.2", ready_at=21.5, released_at=22.0, ended_at=23.0, outcome="failed", exit_code=-9, reason="killed"
    )
    store.record(Batch(components=(component_row("1.1"), component_row("1.2"), whole)))
    assert store.component("1.2") == whole
    assert store.component("1.1") == component_row("1.1")
    assert store.component("1.3") is None


def test_components_of_a_job_come_by_run_then_by_component(store: Store) -> None:
    rows = (
        component_row("c", run=2, part=0, claimed_at=1.0),
        component_row("b", run=1, part=1),
        component_row("a2", run=1, part=0, claimed_at=9.0),
        component_row("a1", run=1, part=0, claimed_at=8.0),
        component_row("other", job=2),
    )
    store.record(Batch(components=rows))
    assert [row.token for row in store.components(1)] == ["a1", "a2", "b", "c"]
    assert store.components(3) == []
    assert store.components(FAR) == []


def test_the_steps_of_what_is_held_at_a_site_are_those_of_what_overlaps_the_time(store: Store) -> None:
    rows = (
        component_row("before", claimed_at=1.0, ended_at=9.0),
        component_row("into", claimed_at=2.0, ended_at=10.0),
        component_row("within", claimed_at=12.0, ended_at=13.0),
        component_row("around", claimed_at=3.0, ended_at=99.0),
        component_row("still", claimed_at=4.0),
        component_row("after", claimed_at=21.0),
        component_row("elsewhere", claimed_at=12.0, site="leiden"),
    )
    store.record(Batch(components=rows))
    size = rows[0].processors
    # Three at first, of which one ends at once.
    steps = [(10.0, 2 * size), (12.0, size), (13.0, -size)]
    assert store.held_processors("delft", 10.0, 20.0) == steps
    assert store.held_processors("delft", 10.0, 20.0, steps_max=3) == steps
    assert store.held_processors("nowhere", 10.0, 20.0) == []


def test_what_ended_lately_is_found_at_a_site_or_anywhere_the_last_first(store: Store) -> None:
    ended = {1: 40.0, 2: 30.0, 3: 20.0, 4: 5.0}
    jobs = [
        job_row(number, state="done", ended_at=at, array=9 if number == 3 else None) for number, at in ended.items()
    ]
    rows = [component_row(f"{number}.1", job=number, ended_at=at) for number, at in ended.items()]
    rows[1] = component_row("2.1", job=2, ended_at=30.0, site="leiden")
    live = component_row("5.1", job=5, ended_at=35.0)  # it runs again
    store.record(Batch(jobs=(*jobs, job_row(5, owner="bob")), components=(*rows, live)))
    assert [(each.id, each.array) for each in store.ended_lately(10.0)] == [(1, None), (2, None), (3, 9)]
    assert [each.id for each in store.ended_lately(10.0, site="delft")] == [1, 3]
    assert [each.id for each in store.ended_lately(10.0, site="delft", ends_max=1)] == [1]
    assert store.ended_lately(10.0, owner="bob") == []
    store.mark_pruned(["1.1"])
    assert [each.id for each in store.ended_lately(10.0)] == [1, 2, 3]


def test_of_many_steps_those_of_a_stretch_of_time_are_one(store: Store) -> None:
    rows = [component_row(f"c{number}", claimed_at=number, ended_at=number + 50.0) for number in range(100)]
    entries = tuple(reported(seq, "delft", float(seq)) for seq in range(1, 101))
    store.record(Batch(components=tuple(rows), entries=entries))
    exact, merged = (store.held_processors("delft", 0.0, 100.0, most) for most in (1_000, 10))
    assert len(exact) > 100
    assert 8 <= len(merged) <= 10
    for at, _ in merged:
        assert sum(more for when, more in merged if when <= at) == sum(more for when, more in exact if when <= at)
    few = store.site_reports("delft", 0.0, 100.0, 10)
    assert 8 <= len(few) <= 10
    assert few[-1].seq == 100


def test_ended_components_are_given_once_they_are_due_until_they_are_marked(store: Store) -> None:
    ended = tuple(component_row(f"1.{number}", ended_at=float(number)) for number in range(1, 6))
    store.record(Batch(components=(*ended, component_row("live"))))
    assert store.ended_components_count() == 5
    assert [row.token for row in store.ended_components(4.0, 2)] == ["1.1", "1.2"]
    store.mark_pruned(["1.1", "1.2", "unknown"])
    assert [row.token for row in store.ended_components(4.0, 9)] == ["1.3"]
    assert store.ended_components_count() == 3


def test_a_component_whose_job_says_how_long_it_is_kept_is_due_then(store: Store) -> None:
    kept = (None, 0.0, 50.0)
    rows = tuple(
        component_row(f"1.{number}", ended_at=float(number), keep_for_s=keep_for_s)
        for number, keep_for_s in enumerate(kept, start=1)
    )
    store.record(Batch(components=rows))
    assert [row.token for row in store.ended_components(1.0, 9, 10.0)] == ["1.2"]
    assert [row.token for row in store.ended_components(2.0, 9, 60.0)] == ["1.1", "1.2", "1.3"]
    assert [row.token for row in store.ended_components(60.0, 9)] == ["1.1", "1.2", "1.3"]


def test_a_row_recorded_again_stays_marked_as_pruned(store: Store) -> None:
    store.record(Batch(components=(component_row("1.1", ended_at=1.0),)))
    store.mark_pruned(["1.1"])
    store.record(Batch(components=(component_row("1.1", ended_at=1.0, reason="late"),)))
    assert store.ended_components(9.0, 9) == []
    assert store.component("1.1") == component_row("1.1", ended_at=1.0, reason="late")


def test_a_transfer_is_found_by_every_job_it_was_ever_for(store: Store) -> None:
    store.record(Batch(transfers=(transfer_row("t2", jobs=(1, 2), started_at=16.0), transfer_row("t1", jobs=(1,)))))
    last = transfer_row("t2", jobs=(3,), started_at=16.0, chunk=(5, 7), ended_at=17.0, ok=False, reason="broken")
    store.record(Batch(transfers=(last,)))
    assert store.transfers(1) == [transfer_row("t1", jobs=(1,)), last]
    assert store.transfers(2) == [last]
    assert store.transfers(3) == [last]
    assert store.transfers(4) == []
    assert store.transfers(FAR) == []


# -------------------------------------------------------------------------------------------------- files


def test_a_file_is_kept_replaced_and_forgotten(store: Store) -> None:
    store.record(Batch(files=(file_entry("a", "delft"), file_entry("b", "delft"))))
    store.record(Batch(files=(file_entry("a", "delft", "leiden"), file_entry("b"), file_entry("never"))))
    assert store.file("a") == file_entry("a", "delft", "leiden")
    assert store.file("b") is None
    assert store.all_files() == [file_entry("a", "delft", "leiden")]


def test_the_last_entry_of_a_file_in_a_batch_counts(store: Store) -> None:
    gone_and_back = (file_entry("a", "delft"), file_entry("a"), file_entry("a", "leiden"))
    store.record(Batch(files=(*gone_and_back, file_entry("b", "delft"), file_entry("b"))))
    assert store.all_files() == [file_entry("a", "leiden")]


def test_files_come_in_the_order_of_their_bytes_in_pages(store: Store) -> None:
    long = "x" * 600
    names = [
        "B",
        "a",
        "a/1",
        "a/2",
        "a0",
        "b",
        "é",
        "漢",
        "😀",
        long,
        long + "1",
        long + "2",
        long[:511],
        "z" * 3_000,
    ]
    store.record(Batch(files=tuple(file_entry(name, "delft") for name in reversed(names))))
    in_order = sorted(names, key=str.encode)
    assert [file.name for file in store.all_files()] == in_order
    for start in (None, *in_order, "nothing", long[:512]):
        later = [name for name in in_order if start is None or name.encode() > start.encode()]
        for prefix in ("", "a", "a/", "é", "q", "😀", long[:511], long, long + "2", "z" * 700):
            expected = [name for name in later if name.startswith(prefix)]
            assert [file.name for file in store.files(after=start, prefix=prefix, limit=3)] == expected[:3]


# ------------------------------------------------------------------------------------------------ journal


def test_entries_are_read_back_as_they_were_recorded(store: Store) -> None:
    ended = JobEnded(
        job=1,
        outcome=JobOutcome.DONE,
        reason="",
        submitted_at=1.0,
        placed_at=None,
        started_at=None,
        ended_at=3.0,
        first_start_estimate=float("inf"),
        last_start_estimate=None,
        places=(("delft", 4),),
        placement_tries=1,
        claiming_tries=1,
        runs=1,
        failures=0,
        preemptions=0,
    )
    entries = (
        submitted(1, 1),
        started(2),
        entry(3, TransferEnded(at=2.5, transfer="t1", ok=False, reason="no room")),
        entry(5, ReleaseBarrier(job=1, tokens=("1.1", "1.2")), job=1),
        entry(8, AbortComponent(site="delft", token=FIRST), job=1, site="delft"),
        entry(9, ended, job=1),
    )
    store.record(Batch(entries=entries))
    assert tuple(store.journal()) == entries
    assert tuple(store.journal(after=3, limit=2)) == entries[3:5]
    assert store.journal(after=9) == []
    assert store.journal(after=FAR) == []
    assert tuple(store.journal(after=-FAR)) == entries


def test_the_journal_of_a_job_has_its_entries_only(store: Store) -> None:
    store.record(Batch(entries=(submitted(1, 1), submitted(2, 2), tick(3), started(4, 1))))
    assert [each.seq for each in store.journal(job=1)] == [1, 4]
    assert [each.seq for each in store.journal(job=1, after=1)] == [4]
    assert store.journal(job=3) == []
    assert store.journal(job=FAR) == []


def test_the_story_of_a_job_has_its_entries_of_some_types_and_of_very_many_the_first_and_the_last(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.record(Batch(entries=(submitted(1, 1), started(2, 2), *(started(seq, 1) for seq in range(3, 33)))))
    assert store.story(1, ["JobSubmitted"]) == StoryRows([submitted(1, 1)])
    assert [each.seq for each in store.story(1, ["StartComponent"]).first] == list(range(3, 33))
    assert store.story(2, ["JobSubmitted"]) == StoryRows([])
    monkeypatch.setattr(queries, "STORY_ENTRIES_MAX", 20)
    found = store.story(1, ["StartComponent"])
    assert [each.seq for each in found.first] == [3, 4]
    assert found.left_out == 10
    assert [each.seq for each in found.last] == list(range(15, 33))


def test_an_owner_sees_the_entries_of_its_jobs_and_of_no_job(store: Store) -> None:
    jobs = (job_row(1, owner="ann"), job_row(2, owner="bob"))
    store.record(Batch(entries=(submitted(1, 1), submitted(2, 2), tick(3)), jobs=jobs))
    # The owner is known from an earlier batch; of job 3 nobody knows whose it is.
    store.record(Batch(entries=(started(4, 1), started(5, 2), started(6, 3), tick(7))))
    assert [each.seq for each in store.journal(owner="ann")] == [1, 3, 4, 7]
    assert [each.seq for each in store.journal(owner="bob")] == [2, 3, 5, 7]
    assert [each.seq for each in store.journal(owner="cas")] == [3, 7]
    assert [each.seq for each in store.journal(owner="")] == [3, 6, 7]
    assert [each.seq for each in store.journal(owner="ann", after=1, limit=2)] == [3, 4]
    assert [each.seq for each in store.journal(owner="ann", job=1)] == [1, 4]
    assert store.journal(owner="ann", job=2) == []


def test_reports_of_a_site_begin_with_the_last_one_before(store: Store) -> None:
    at = [1.0, 2.0, 2.0, 5.0, 8.0, 9.0]
    reports = tuple(reported(seq, "delft", at[seq - 1]) for seq in range(1, 7))
    store.record(Batch(entries=(*reports, reported(7, "leiden", 9.0), started(8))))
    assert [each.seq for each in store.site_reports("delft", 5.0, 8.0)] == [3, 4, 5]
    assert [each.seq for each in store.site_reports("delft", 3.0, 4.0)] == [3]
    assert [each.seq for each in store.site_reports("delft", 0.0, 2.0)] == [1, 2, 3]
    assert store.site_reports("delft", 8.5, 10.0)[-1] == reports[5]
    assert store.site_reports("nowhere", 0.0, 99.0) == []


# ------------------------------------------------------------------------------------------------- tokens


def test_tokens_are_kept_used_and_revoked_once(store: Store) -> None:
    store.add_token(token_row("k2", created_at=6.0, note="laptop"))
    store.add_token(token_row("k1"))
    store.touch_token("k1", 7.5)
    store.touch_token("unknown", 7.5)
    assert store.revoke_token("k1", 8.0)
    assert store.revoke_token("k1", 9.0)
    assert not store.revoke_token("unknown", 9.0)
    first = msgspec.structs.replace(token_row("k1"), used_at=7.5, revoked_at=8.0)
    assert store.tokens() == [first, token_row("k2", created_at=6.0, note="laptop")]
    assert store.token_by_hash("hash of k1") == first
    assert store.token_by_hash("hash of k3") is None


def test_tokens_revoked_long_ago_may_be_left_out(store: Store) -> None:
    for name, revoked_at in (("old", 8.0), ("new", 9.0), ("valid", None)):
        store.add_token(token_row(name))
        if revoked_at is not None:
            store.revoke_token(name, revoked_at)
    assert {each.id for each in store.tokens(revoked_since=9.0)} == {"new", "valid"}
    assert {each.id for each in store.tokens(revoked_since=float("inf"))} == {"valid"}
    assert len(store.tokens()) == 3
