"""What an application does to its own directory is its own end: no other component and no site suffers from it."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import subprocess
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koala.model.errors import Fault
from koala.model.launch import Go
from koala.model.messages import (
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    Outcome,
    SiteSilent,
)
from koala.sites import Stream
from koala.sites.component_directory import MAILS_MAX, RECORD_BYTES_MAX
from koala.sites.local.directory import ComponentDirectory
from koala.sites.local.worker import LocalWorker
from koala.sites.processes import parse_identity
from tests.support.live_sites import file_appears, launch, opened, processes_of

# Removes its directory, says so, and goes on.
GONE = 'rm -rf "$KOALA_HOME"; touch {on}; sleep 60'


def is_gone(pid: int) -> bool:
    """Whether a process has ended; who should reap it does not matter."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.parametrize("what", ["ask", "start", "abort", "release", "nothing"])
def test_a_component_that_removes_its_directory_is_ended_and_never_absent_while_it_runs(
    tmp_path: Path, what: str
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            mine = launch(application=GONE.format(on=tmp_path / "on"))
            await one.start(mine)
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "on")
            match what:
                case "ask":
                    await one.site.ask(["1.1"])
                case "start":
                    await one.start(mine)
                case "abort":
                    await one.site.abort("1.1")
                case "release":
                    await one.site.release("1.1", Go())
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "directory" in ended.reason
            assert not processes_of(tmp_path)
            assert one.site.processors_held == 0
            await one.site.ask(["1.1"])
            assert one.events[-1] == ended
            assert not [event for event in one.events if isinstance(event, SiteSilent)]
        async with opened(tmp_path / "a") as one:
            await one.site.ask(["1.1"])
            assert one.events == [ended]

    asyncio.run(scenario())


def test_a_component_whose_directory_goes_while_it_waits_for_slots_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            await one.start(launch("1.1"), launch("1.2"), launch("1.3"))
            await one.ready("1.1")
            for token in ("1.2", "1.3"):
                home = tmp_path / "a/components" / token
                home.rename(tmp_path / token)
            await one.site.abort("1.3")
            assert (await one.ended("1.3")).outcome is Outcome.SITE_FAILED
            await one.site.release("1.1", Go())
            assert (await one.ended("1.1")).outcome is Outcome.DONE
            assert (await one.ended("1.2")).outcome is Outcome.SITE_FAILED
            assert await one.site.held() == ()

    asyncio.run(scenario())


@pytest.mark.parametrize("what", ["release", "deliver", "nothing"])
def test_a_component_whose_directory_goes_at_the_barrier_ends(tmp_path: Path, what: str) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch())
            await one.ready("1.1")
            (tmp_path / "a/components/1.1").rename(tmp_path / "moved")
            if what == "release":
                await one.site.release("1.1", Go())
            elif what == "deliver":
                await one.site.deliver("1.1", "proxy", b"x")
            assert (await one.ended("1.1")).outcome is Outcome.SITE_FAILED
            assert not processes_of(tmp_path)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "trick",
    [
        'rm -rf "$KOALA_HOME/outbox"; sleep 60',
        'rm -rf "$KOALA_HOME/outbox"; touch "$KOALA_HOME/outbox"; sleep 60',
        'mkfifo "$KOALA_HOME/exit"; sleep 60',
        'mkfifo "$KOALA_HOME/outbox/proxies"; sleep 60',
        'rm "$KOALA_HOME/stdout"; mkfifo "$KOALA_HOME/stdout"; sleep 60',
        'mkdir -p "$KOALA_HOME/.abort.site/x" "$KOALA_HOME/.ended.json.site/x"; sleep 60',
        'mkfifo "$KOALA_HOME/.abort.site" "$KOALA_HOME/.ended.json.site"; sleep 60',
        'mkdir -p "$KOALA_HOME/ended.json/x"; sleep 60',
    ],
)
def test_no_trick_with_its_files_keeps_the_site_from_others_or_a_component_from_its_end(
    tmp_path: Path, trick: str
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch("1.1", trick.replace("; sleep", f"; touch {tmp_path}/on; sleep")), launch("1.2"))
            await one.ready("1.1", "1.2")
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "on")
            await one.site.release("1.2", Go())
            assert (await one.ended("1.2")).outcome is Outcome.DONE
            assert await one.site.output("1.1", Stream.STDOUT, 0) == b""
            assert await one.site.fetch("1.1", "proxies") is None
            await one.site.abort("1.1")
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.ABORTED
            assert not one.mail
            assert not [event for event in one.events if isinstance(event, SiteSilent)]
        async with opened(tmp_path / "a") as one:
            await one.site.ask(["1.1"])
            assert one.events == [ended]
            assert not [home for home in (tmp_path / "a/components").iterdir() if home.name.startswith(".")]

    asyncio.run(scenario())


# A tree that no path leads to the end of, nor a function that calls itself for each directory.
DEEP = """python3 - <<'END'
import os
os.chdir(os.environ["KOALA_HOME"])
for name in ["{name}"] + ["d"] * 3000:
    os.mkdir(name)
    os.chdir(name)
open("file", "w").close()
END
"""


@pytest.fixture
def deep_path(tmp_path: Path) -> Iterator[Path]:
    """A place for such trees, which go also where the test fails: pytest cannot remove them."""
    yield tmp_path
    subprocess.run(["rm", "-rf", tmp_path], check=True)


@pytest.mark.parametrize("name", [".ended.json.site", ".abort.site", "workspace/d"])
def test_a_very_deep_directory_keeps_no_component_from_its_end_and_no_site_from_opening(
    deep_path: Path, name: str
) -> None:
    async def scenario() -> None:
        async with opened(deep_path / "a") as one:
            await one.start(launch("1.1", DEEP.format(name=name) + f"touch {deep_path}/on; sleep 60"))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(deep_path / "on")
            await one.site.abort("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.ABORTED
        home = deep_path / "a/components/1.1"
        if name.startswith("workspace"):
            home.rename(home.with_name(".1.1.gone"))  # as one that was killed at forgetting it left it
        async with opened(deep_path / "a") as one:
            assert not [home for home in (deep_path / "a/components").iterdir() if home.name.startswith(".")]
            assert (await one.run(launch("1.2"))).outcome is Outcome.DONE

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "written", "outcome", "fault"),
    [
        ("exit", "killed", Outcome.SITE_FAILED, None),
        ("exit", "no-nodes", Outcome.FAILED, Fault.JOB),
        ("exit", "nonsense", Outcome.FAILED, Fault.JOB),
    ],
)
def test_an_end_that_an_application_wrote_itself_proves_nothing_against_its_site(
    tmp_path: Path, name: str, written: str, outcome: Outcome, fault: Fault | None
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            ended = await one.run(launch("1.1", f'echo {written} >"$KOALA_HOME/{name}"; kill -9 $PPID; exit 1'))
            assert (ended.outcome, ended.fault) == (outcome, fault)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("written", "outcome", "fault"),
    [
        ({"outcome": "site_failed", "fault": "site"}, Outcome.SITE_FAILED, None),
        ({"token": "2.1"}, Outcome.FAILED, Fault.JOB),
        ({"peak_memory_bytes": 2**63}, Outcome.FAILED, Fault.JOB),
    ],
)
def test_an_end_on_record_that_an_application_wrote_is_no_fault_of_its_site_nor_the_end_of_another(
    tmp_path: Path, written: dict[str, object], outcome: Outcome, fault: Fault | None
) -> None:
    end = json.dumps({"type": "ComponentEnded", "at": 1.0, "token": "1.1", "outcome": "done", **written})
    quoted = end.replace("{", "{{").replace("}", "}}")
    forges = f"printf '%s' '{quoted}' >\"$KOALA_HOME/ended.json\"; touch {{on}}; sleep 60"

    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch("1.1", forges.format(on=tmp_path / "on")))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "on")
        async with opened(tmp_path / "a") as one:
            await one.site.ask(["1.1"])
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.fault) == (outcome, fault)
            assert {event.token for event in one.events if isinstance(event, ComponentEnded)} == {"1.1"}

    asyncio.run(scenario())


def test_a_process_that_no_system_has_keeps_no_processors_after_the_next_opening(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            forges = f'echo {"9" * 30} - - >"$KOALA_HOME/pid"; touch {tmp_path}/on; sleep 60'
            await one.start(launch("1.1", forges))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "on")
        async with opened(tmp_path / "a", processors=1) as one:
            assert (await one.ended("1.1")).outcome is Outcome.SITE_FAILED
            assert one.site.processors_held == 0

    asyncio.run(scenario())


def test_nothing_that_an_application_left_stays_when_its_component_is_forgotten(deep_path: Path) -> None:
    left = (
        'mkdir -p a/b/c "$KOALA_HOME/.ended.json.site/x"; touch a/b/f; ln -s / link; chmod 500 a/b; '
        'chmod 0 a "$KOALA_HOME/.ended.json.site"'
    )

    async def scenario() -> None:
        async with opened(deep_path / "a") as one:
            assert (await one.run(launch("1.1", left))).outcome is Outcome.DONE
            assert (await one.run(launch("1.2", DEEP.format(name="workspace/d")))).outcome is Outcome.DONE
            await one.site.forget("1.1")
            await one.site.forget("1.2")
            assert list((deep_path / "a/components").iterdir()) == []

    asyncio.run(scenario())


def test_an_abort_that_cannot_be_kept_in_its_directory_ends_the_component_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_abort(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            await one.start(launch("1.1", "sleep 60"), launch("1.2"))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            monkeypatch.setattr(ComponentDirectory, "put_abort", put_abort)
            for token in ("1.2", "1.1"):
                await one.site.abort(token)
                assert (await one.ended(token)).outcome is Outcome.SITE_FAILED
            assert not processes_of(tmp_path)

    asyncio.run(scenario())


def test_an_error_about_one_component_is_logged_once_and_the_others_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = ComponentDirectory.exit_words

    def exit_words(directory: ComponentDirectory) -> list[str] | None:
        if directory.token == "1.1":  # noqa: S105 - a component's
            raise RuntimeError("nobody thought of this")
        return real(directory)

    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch("1.1"), launch("1.2"))
            await one.ready("1.1", "1.2")
            await one.site.release("1.1", Go())
            monkeypatch.setattr(ComponentDirectory, "exit_words", exit_words)
            for token in ("1.2", "1.3", "1.4"):
                if token != "1.2":  # noqa: S105 - a component's
                    await one.start(launch(token))
                await one.site.release(token, Go())
                assert (await one.ended(token)).outcome is Outcome.DONE
            assert sum("cannot be inspected" in record.message for record in caplog.records) == 1
            monkeypatch.setattr(ComponentDirectory, "exit_words", real)
            assert (await one.ended("1.1")).outcome is Outcome.DONE

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())


def test_processes_whose_directory_went_while_nobody_watched_are_ended_at_the_next_opening(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate, on, pids = tmp_path / "gate", tmp_path / "on", tmp_path / "pids"
        wait = f"while [ ! -e {gate} ]; do sleep 0.3; done"
        # One of them has no environment by which it could be known.
        script = f"env -i /bin/sleep 60 & echo $$ $! > {pids}; {wait}; {GONE.format(on=on)}"
        async with opened(tmp_path / "a", processors=1) as one:
            await one.start(launch("1.1", script), launch("1.2"))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(pids)
        gate.touch()
        await file_appears(on)
        async with opened(tmp_path / "a", processors=1) as one:
            assert all(is_gone(int(pid)) for pid in pids.read_text().split())
            await one.site.ask(["1.1"])
            assert (await one.ended("1.1")).outcome is Outcome.SITE_FAILED
            await one.ready("1.2")
            await one.site.release("1.2", Go())
            assert (await one.ended("1.2")).outcome is Outcome.DONE

    asyncio.run(scenario())


def test_a_site_opens_also_when_such_processes_cannot_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    searches: list[LocalWorker] = []

    def end_strays(worker: LocalWorker) -> bool:
        searches.append(worker)
        return True

    monkeypatch.setattr(LocalWorker, "end_strays", end_strays)

    async def scenario() -> None:
        async with opened(tmp_path / "a", stray_searches_max=3) as one:
            assert (await one.run(launch())).outcome is Outcome.DONE

    asyncio.run(scenario())
    assert len(searches) == 3
    assert "cannot be ended" in caplog.text


def test_an_error_that_is_not_about_one_component_keeps_the_site_closed_and_its_components_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(_: ComponentDirectory) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch())
            await one.ready("1.1")
        with monkeypatch.context() as failing:
            failing.setattr(ComponentDirectory, "recorded", recorded)
            with pytest.raises(OSError, match="Too many"):
                async with opened(tmp_path / "a"):
                    pass
        async with opened(tmp_path / "a") as one:
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            assert (await one.ended("1.1")).outcome is Outcome.DONE

    asyncio.run(scenario())


def garbage(name: str) -> Callable[[Path], object]:
    return lambda home: (home / name).write_bytes(b'{"x": \xff')


def pipe(home: Path) -> None:
    (home / "record.json").unlink()
    os.mkfifo(home / "record.json")


def other_token(home: Path) -> None:
    text = (home / "record.json").read_text()
    (home / "record.json").write_text(text.replace('"1.1"', '"1.9"'))


@pytest.mark.parametrize(
    "spoil",
    [
        garbage("record.json"),
        garbage("ended.json"),
        garbage("released"),
        lambda home: (home / "released").write_text("nan"),
        lambda home: (home / "released").unlink(),
        lambda home: (home / "record.json").unlink(),
        lambda home: [each.unlink() for each in home.iterdir() if each.is_file()],
        lambda home: (home / "ended.json").mkdir(),
        pipe,
        other_token,
    ],
)
def test_a_bad_file_of_one_component_does_not_keep_the_site_from_opening(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch("1.1", f"touch {tmp_path}/on; sleep 60"), launch("1.2"))
            await one.ready("1.1", "1.2")
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "on")
        spoil(tmp_path / "a/components/1.1")
        (tmp_path / "a/components/a file").touch()
        (tmp_path / "a/components/no token").mkdir()
        async with opened(tmp_path / "a") as one:
            await one.site.ask(["1.1"])
            assert (await one.ended("1.1")).outcome is Outcome.SITE_FAILED
            await one.ready("1.2")
            await one.site.release("1.2", Go())
            assert (await one.ended("1.2")).outcome is Outcome.DONE
            assert not processes_of(tmp_path)
            assert await one.site.held() == ()
        async with opened(tmp_path / "a") as one:
            await one.site.ask(["1.1"])
            assert [event.outcome for event in one.events if isinstance(event, ComponentEnded)] == [
                Outcome.SITE_FAILED
            ]

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["record.json", "released", "ended.json"])
def test_a_file_that_is_longer_than_the_site_writes_it_is_its_jobs_failure_and_is_not_read(
    tmp_path: Path, name: str
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            application = f'truncate -s 1000G "$KOALA_HOME/{name}"; touch {tmp_path}/on; sleep 60'
            await one.start(launch("1.1", application), launch("1.2"))
            await one.ready("1.1", "1.2")
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "on")
            assert await one.site.output("1.1", Stream.STDOUT, 0) == b""
        tracemalloc.start()
        async with opened(tmp_path / "a") as one:
            await one.site.ask(["1.1"])
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.FAILED
            assert f"the job wrote its own {name}" in ended.reason
            assert "BYTES_MAX" in ended.reason
            await one.ready("1.2")
            await one.site.release("1.2", Go())
            assert (await one.ended("1.2")).outcome is Outcome.DONE
            assert not processes_of(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 3 * RECORD_BYTES_MAX
        tracemalloc.stop()

    asyncio.run(scenario())


def test_an_exit_that_is_longer_than_the_script_writes_it_is_its_jobs_failure(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            ended = await one.run(launch("1.1", 'truncate -s 1000G "$KOALA_HOME/exit"; sleep 60'))
            assert ended.outcome is Outcome.FAILED
            assert "EXIT_BYTES_MAX" in ended.reason

    asyncio.run(scenario())


def test_of_an_outbox_with_very_many_files_a_bounded_number_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            many = f'cd "$KOALA_HOME/outbox"; for i in $(seq {3 * MAILS_MAX}); do echo x >m-$i; done'
            assert (await one.run(launch("1.1", many))).outcome is Outcome.DONE
            assert len(one.mail) <= MAILS_MAX
            assert len(ComponentDirectory(tmp_path / "a/components", "1.1").outbox()) == MAILS_MAX

    asyncio.run(scenario())


def test_a_component_that_is_started_anew_waits_for_no_reader_of_its_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch("1.1"))
            await one.ready("1.1")
        home = tmp_path / "a/components/1.1"
        identity = parse_identity((home / "pid").read_text())
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)
        for name in ("pid", "log"):
            (home / name).unlink()
        os.mkfifo(home / "log")
        async with opened(tmp_path / "a") as one:
            assert (await one.ended("1.1")).outcome is Outcome.SITE_FAILED
            await one.run(launch("1.2"))

    asyncio.run(scenario())


def test_an_end_that_cannot_be_read_is_a_failure_of_the_site(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.run(launch("1.1"))
            (tmp_path / "a/components/1.1/ended.json").write_text("x")
            await one.site.abort("1.1")
            assert one.told(ComponentEnded, "1.1")[-1].outcome is Outcome.SITE_FAILED
            (tmp_path / "a/components/1.1/ended.json").unlink()
            await one.site.ask(["1.1"])
            assert one.told(ComponentEnded, "1.1")[-1].outcome is Outcome.SITE_FAILED
            kinds = {type(event) for event in one.events}
            assert kinds <= {ComponentAccepted, ComponentReady, ComponentRunning, ComponentEnded}

    asyncio.run(scenario())
