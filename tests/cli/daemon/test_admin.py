"""``koala admin`` on the store of a stopped daemon: listed, removed, written out; refused while one runs."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.cli.daemon.admin import size_words
from koala.model.messages import RequeueAsked
from koala.store import Store
from koala.store.rows import RecordRow
from tests.support.engine_world import a_request, local_grid, open_engine, root

__all__ = ["root"]

SCRIPT = "echo " + "a long word " * 100


@pytest.fixture
def jobs(root: Path) -> list[int]:
    """Three jobs of a daemon that has stopped: two are done, one waits."""

    async def scenario() -> list[int]:
        async with open_engine(root, local_grid((1,))) as world:
            done = [(await world.run(a_request(SCRIPT, name=f"done {number}"))).id for number in range(2)]
            return [*done, await world.submit(a_request("exit 0", sizes=(2,), name="waits"))]

    return asyncio.run(scenario())


def admin(*arguments: str | int | Path, columns: int = 100) -> Result:
    return CliRunner().invoke(koala, ["admin", *map(str, arguments)], env={"COLUMNS": str(columns)})


def test_jobs_are_listed_with_what_they_take(root: Path, jobs: list[int]) -> None:
    listed = json.loads(admin("jobs", "--state", root, "--json").output)
    assert [each["job"] for each in listed] == jobs[::-1]
    assert [each["state"] for each in listed] == ["waiting", "done", "done"]
    assert len(SCRIPT) < listed[1]["request"] < len(SCRIPT) + 400
    assert (listed[0]["components"], listed[1]["components"]) == (0, 1)
    assert listed[1]["entries"] > listed[0]["entries"] > 0
    largest = json.loads(admin("jobs", "--state", root, "--json", "--largest", "--limit", "1").output)
    assert [each["job"] for each in largest] != jobs[2:]
    table = admin("jobs", "--state", root, "--limit", "2", columns=80).output
    assert "waits" in table
    assert "and 1 more job; --limit 4 shows more" in table
    assert max(map(len, table.splitlines())) <= 80


def test_a_job_is_removed_and_one_that_is_not_there_is_named(root: Path, jobs: list[int]) -> None:
    done = admin("remove", jobs[2], jobs[0], "--state", root)
    assert (done.exit_code, done.output) == (0, f"Job {jobs[2]} is removed.\nJob {jobs[0]} is removed.\n")
    assert [each["job"] for each in json.loads(admin("jobs", "--state", root, "--json").output)] == [jobs[1]]
    again = admin("remove", jobs[2], "--state", root)
    assert again.exit_code == 1
    assert f"there is no job {jobs[2]} in " in again.output
    as_json = json.loads(admin("remove", jobs[1], "--state", root, "--json").output)
    assert as_json == [{"job": jobs[1], "was_there": True, "held": []}]
    assert admin("jobs", "--state", root).output == "No jobs.\n"


def test_what_a_removed_job_may_still_hold_is_told(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((2,))) as world:
            job = await world.submit(a_request("sleep 600", sizes=(2,)))
            await world.in_state(job, "running")
        done = await asyncio.to_thread(admin, "remove", job, "--state", root)
        assert done.output.startswith("Job 1 is removed.\nIt may still hold 1.1 at a (2 processors): the next start")
        async with open_engine(root, local_grid((2,))) as world:
            await world.until(lambda: world.site("a").processors_held == 0)

    asyncio.run(scenario())


def test_everything_is_written_out_as_json_lines(root: Path, jobs: list[int], tmp_path: Path) -> None:
    lines = [json.loads(line) for line in admin("export", "--state", root).output.splitlines()]
    kinds = {kind for line in lines for kind in line}
    of_kind = {kind: [line[kind] for line in lines if kind in line] for kind in kinds}
    assert set(of_kind) == {"text", "request", "job", "component", "entry", "record"}
    assert [line["body"] for line in of_kind["text"]] == [SCRIPT]
    assert [line["id"] for line in of_kind["job"]] == jobs
    keys = {line["key"] for line in of_kind["request"]}
    assert {line["request_key"] for line in of_kind["job"]} == keys
    submissions = [line for line in of_kind["entry"] if line["what"] == "JobSubmitted"]
    assert [line["body"]["job"] for line in submissions] == jobs
    assert {line["request_key"] for line in submissions} == keys
    file = tmp_path / "out.jsonl"
    assert admin("export", "--state", root, "-o", file).output == ""
    assert [json.loads(line) for line in file.read_text().splitlines()] == lines


def test_records_are_listed_shown_and_written_out(root: Path, jobs: list[int], tmp_path: Path) -> None:
    waits = str(jobs[2])
    listed = json.loads(admin("records", "--state", root, "--json").output)
    assert listed["set_aside"] == []
    kinds = [each["kind"] for each in listed["records"]]
    assert kinds == sorted(kinds)
    assert set(kinds) >= {"grid", "scheduler", "site", "queue", "job"}
    assert [each["key"] for each in listed["records"] if each["kind"] == "job"] == [waits]
    of_job = json.loads(admin("records", "--state", root, "--json", "--job", waits).output)["records"]
    assert [(each["kind"], each["key"]) for each in of_job] == [("job", waits)]
    shown = admin("record", "job", waits, "--state", root)
    assert json.loads(shown.output)["id"] == jobs[2]
    assert of_job[0]["size"] == len(json.dumps(json.loads(shown.output), separators=(",", ":")))
    table = admin("records", "--state", root, "--kind", "queue", columns=80).output
    assert [line.split()[:2] for line in table.splitlines()] == [["kind", "key"], ["queue", "high"], ["queue", "low"]]
    assert json.loads(admin("record", "scheduler", "--state", root).output)["last_job"] == jobs[2]
    file = tmp_path / "job.json"
    assert admin("record", "job", waits, "--state", root, "-o", file).output == ""
    assert file.read_text() == shown.output
    assert admin("records", "--state", root, "--job", "99").output == "No records.\n"


def test_records_that_are_not_there_are_named(root: Path, jobs: list[int]) -> None:
    for verb in ("record", "forget"):
        missing = admin(verb, "job", "99", "--state", root)
        assert missing.exit_code == 1
        assert "there is no record job 99 in " in missing.output
        assert "koala admin records --kind job lists them" in " ".join(missing.output.split())
        wrong = admin(verb, "jobs", "--state", root)
        assert wrong.exit_code == 2
        assert "there are no records of the kind 'jobs'; the kinds are application, claim, " in wrong.output
    refused = admin("forget", "scheduler", "--state", root)
    assert refused.exit_code == 2
    assert "without the record scheduler no start succeeds" in refused.output
    assert len(jobs) == 3


def test_a_damaged_record_is_shown_forgotten_and_its_job_is_tried_again(root: Path, jobs: list[int]) -> None:
    waits = jobs[2]
    with closing(Store.open(root / "koala.db")) as store:
        (body,) = [row.body for row in store.records() if (row.kind, row.key) == ("job", str(waits))]
        damaged = json.dumps(json.loads(body or b"") | {"state": "running", "phase": {"position": 3}})
        store.write_records([RecordRow("job", str(waits), damaged.encode())])

    async def start(*, requeue: bool) -> str:
        async with open_engine(root, local_grid((2,))) as world:
            row = world.engine.live_row(waits)
            assert row is not None
            if requeue:
                await world.engine.tell(RequeueAsked(at=0.0, job=waits))
                assert (await world.ended(waits))[0].state == "done"
            return row.state

    assert asyncio.run(start(requeue=False)) == "quarantined"
    ((aside),) = json.loads(admin("records", "--state", root, "--json").output)["set_aside"]
    assert (aside["kind"], aside["key"], aside["size"]) == ("job", str(waits), len(damaged))
    assert aside["problem"] == "it cannot be read: it is running, and has position"
    table = admin("records", "--state", root, "--job", waits).output
    assert "1 record set aside:" in table
    assert "and has position" in " ".join(table.split())
    asyncio.run(start(requeue=True))
    assert json.loads(admin("record", "job", waits, "--state", root).output) == json.loads(damaged)
    done = admin("forget", "job", waits, "--state", root)
    assert done.output == f"The record job {waits} is removed. It had been set aside: nothing else changes.\n"
    assert json.loads(admin("records", "--state", root, "--json").output)["set_aside"] == []


def test_what_follows_when_a_record_is_forgotten_is_said(root: Path, jobs: list[int]) -> None:
    waits = jobs[2]
    done = admin("forget", "job", waits, "--state", root)
    assert done.output.startswith(f"The record job {waits} is removed. The next start sets job {waits} aside; ")
    assert "Only the grid file describes the site" in admin("forget", "site", "a", "--state", root).output

    async def state() -> str:
        async with open_engine(root, local_grid((1,))) as world:
            return (await world.in_state(waits, "quarantined")).state

    assert asyncio.run(state()) == "quarantined"


def test_a_store_that_a_daemon_uses_or_that_is_not_there_is_refused(root: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))):
            used = await asyncio.to_thread(admin, "jobs", "--state", root)
            assert used.exit_code == 4
            assert "another Koala daemon uses it; stop that one first" in used.output

    asyncio.run(scenario())
    url = f"sqlite:///{root / 'koala.db'}"
    assert admin("jobs", "--database", url).output == "No jobs.\n"
    nothing = admin("jobs", "--state", tmp_path / "nowhere")
    assert nothing.exit_code == 2
    assert "there is no database" in nothing.output
    assert "--state" in nothing.output
    mistyped = admin("jobs", "--database", f"{url}.typo")
    assert mistyped.exit_code == 2
    assert "there is no database" in mistyped.output
    assert not (root / "koala.db.typo").exists()
    wrong = admin("jobs", "--database", "nonsense")
    assert wrong.exit_code == 2
    assert "write sqlite:///PATH or postgresql://USER@HOST/NAME" in wrong.output


def test_sizes_are_short() -> None:
    assert [size_words(number) for number in (0, 999, 1_000, 65_536, 67_600_000)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "65.5 kB",
        "67.6 MB",
    ]
