"""The daemon's engine is killed again and again while co-allocated jobs run, among them arrays, jobs that wait for
others, jobs that are held until they are released, jobs that save their state and are requeued, and jobs that make
outputs; nothing is lost or doubled.

``KOALA_KILLS=50`` runs the long form, with twice as many jobs as kills; ``KOALA_KILLS_SEED`` chooses another storm,
``KOALA_KILLS_DATABASE=postgresql`` another database. With ``KOALA_KILLS_SIGNALS=2`` processes of components are sent
signals too, two around each kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import random
import signal
import sys
import tarfile
import time
from collections.abc import Iterator, Set
from pathlib import Path

import msgspec
import pytest
import sqlalchemy

from koala.daemon.engine.loop import Engine
from koala.daemon.service.data.files import FileService
from koala.files.area.layout import replica_path
from koala.model.checkpoint import Checkpoint, CheckpointSignal
from koala.model.dependency import Condition, Dependency
from koala.model.job_array import read_array
from koala.model.outputs import OUTPUT_PREFIX, JobOutput, output_name
from koala.model.request import Application, Component, Flexibility, InputFile, InputMode, Priority, Request
from koala.policies import Catalogue
from koala.sites.local.site import LocalSite
from koala.store import ComponentRow, Store, StoredJob
from tests.support.engine_child import DATA, FILE_SITES, OWNER, Wish, grid
from tests.support.live_sites import processes_of
from tests.support.local_areas import local_areas
from tests.support.paths import SUPPORT
from tests.support.postgres_server import postgres_server
from tests.support.warm_koala import PipedProgram

CHILD = SUPPORT / "engine_child.py"
KILLS = int(os.environ.get("KOALA_KILLS", "8"))
JOBS = 20 if KILLS <= 8 else 2 * KILLS
SEED = int(os.environ.get("KOALA_KILLS_SEED", "1"))
DATABASE = os.environ.get("KOALA_KILLS_DATABASE", "sqlite")
SIGNALS = int(os.environ.get("KOALA_KILLS_SIGNALS", "0"))
# More than the signals can use up: a job that gives up is not one that was lost.
RESTARTS_MAX = 1_000
# How long all of it may take on a busy machine before something must be wrong.
PATIENCE_S = 600.0 + 10.0 * KILLS

# Each application notes its start and its end. One in five fails in the first run of the job that gets so far. One
# that saves its state begins and ends it with the number of the save, and notes a state that is not whole.
SCRIPT = """
me="$KOALA_JOB $KOALA_COMPONENT ${{KOALA_HOME##*/}}"
for file in {files}; do
    [ -s "$file" ] || exit 99
done
save() {{
    saves=$((saves + 1))
    {{ echo "$saves"; head -c 20000 /dev/zero | tr '\\0' s; echo; echo "$saves"; }} >"$state.part" &&
        mv "$state.part" "$state" && echo "$KOALA_JOB $KOALA_COMPONENT $saves" >>'{root}/saved'
}}
if [ -n "${{KOALA_CHECKPOINT-}}" ]; then
    state=$KOALA_CHECKPOINT/state saves=0
    if [ -e "$state" ]; then
        saves=$(head -n 1 "$state")
        [ "$(wc -l <"$state")" = 3 ] && [ "$(tail -n 1 "$state")" = "$saves" ] || echo "$me" >>'{root}/half'
    fi
    trap 'save; echo "end $me" >>"{log}"; exit 0' USR1
    save
fi
echo "start $me" >>'{log}'
trap 'echo "end $me" >>"{log}"; exit 1' TERM
sleep {nap} &
wait $!
if {makes}; then
    mkdir -p logs && echo "$me" >logs/note
    {{ echo "$me"; head -c 20000 /dev/zero | tr '\\0' x; }} >result
fi
echo "end $me" >>'{log}'
if {fails} && [ "$KOALA_COMPONENT" = 0 ] && mkdir '{root}/failed-{number}' 2>/dev/null; then
    exit 3
fi
"""


# One job in ten of each: saving its state, held until it is released, waiting for two others, an array.
SAVES, IS_HELD, WAITS, IS_ARRAY = 5, 7, 8, 9
# Of four jobs, the last one's components are chosen for it.
FLEXIBLE = 3
# Three in ten make a file, which is brought to another site besides, and a directory.
MAKES = (2, SAVES, IS_ARRAY)
OUTPUTS = (JobOutput(path="result", to="b"), JobOutput(path="logs"))
ARRAY = read_array("3,5-9:2%2")
SAVING = Checkpoint(signal=CheckpointSignal.USR1, grace_s=20.0)


def waits_for(number: int) -> tuple[tuple[int, Condition], ...]:
    """What a job of the mix waits for: that the held one before it is done, and that another has started."""
    return ((number - 1, Condition.DONE), (number - 5, Condition.STARTED)) if number % 10 == WAITS else ()


def wishes(root: Path, rng: random.Random) -> list[Wish]:
    """A mix: fixed, non-fixed and flexible, with and without files, high and low, some that fail once, some that are
    kept back, and arrays."""
    made = []
    for number in range(JOBS):
        inputs: tuple[InputFile, ...] = ()
        if number % 3 == 0:
            mode = rng.choice(list(InputMode))
            inputs = (InputFile(name=rng.choice(sorted(FILE_SITES)), mode=mode, path="input/data"),)
        script = SCRIPT.format(
            log=root / "log",
            root=root,
            number=number,
            nap=round(rng.uniform(0.05, 0.6), 2),
            fails="true" if number % 5 == 0 else "false",
            files=" ".join(file.path or file.name for file in inputs),
            makes="true" if number % 10 in MAKES else "false",
        )
        application = Application(script=script)
        kind = number % 4
        flexible = Flexibility(component_min=1, components_max=3) if kind == FLEXIBLE else None
        sizes = [rng.randint(3, 8)] if flexible else [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
        request = Request(
            name=f"job-{number}",
            components=tuple(
                Component(
                    processors=size,
                    application=application,
                    input_files=inputs,
                    site="abc"[index] if kind == 1 else None,
                    outputs=OUTPUTS if number % 10 in MAKES else (),
                )
                for index, size in enumerate(sizes)
            ),
            flexible=flexible,
            policy="FCM" if flexible else rng.choice(["WF", "CF", "CM"]),
            priority=Priority.HIGH if number % 2 == 0 else Priority.LOW,
            hold=number % 10 == IS_HELD,
            array=ARRAY if number % 10 == IS_ARRAY else None,
            checkpoint=SAVING if number % 10 == SAVES else None,
            restarts_max=RESTARTS_MAX,  # signals to components are not what is tested here
        )
        made.append(Wish(client_token=f"wish-{number}", request=request))
    return made


class Parent:
    """Starts children, asks them for jobs until each is acknowledged, and kills them."""

    def __init__(self, root: Path, database: str, wanted: list[Wish]) -> None:
        self.root = root
        self.database = database
        self.signals = 0
        self.wanted = {wish.client_token: wish for wish in wanted}
        self.ids: dict[str, int] = {}
        self.released: set[int] = set()
        self.requeued: set[int] = set()
        self.asked_to_go: set[int] = set()
        self.errors = root / "errors"

    @contextlib.contextmanager
    def child(self) -> Iterator[PipedProgram]:
        with (
            self.errors.open("a") as errors,
            PipedProgram(CHILD, str(self.root), self.database, errors=errors.fileno()) as process,
        ):
            try:
                yield process
            finally:
                process.kill()
                # What it had acknowledged before it was killed counts.
                for line in process.stdout:
                    self.take(line)

    def take(self, line: str) -> None:
        words = line.split()
        if len(words) == 3 and words[0] in self.wanted:
            known = self.ids.setdefault(words[0], int(words[1]))
            assert known == int(words[1]), "one client token, one job"
        elif len(words) == 2 and words[0] == "released":
            self.released.add(int(words[1]))
        elif len(words) == 2 and words[0] == "requeued":
            self.requeued.add(int(words[1]))

    def left(self) -> list[str]:
        """What no child has acknowledged yet and can be asked for now, as lines for one."""
        lines = []
        for token, wish in self.wanted.items():
            number = int(token.removeprefix("wish-"))
            if token not in self.ids:
                after = [(self.ids.get(f"wish-{other}"), condition) for other, condition in waits_for(number)]
                if all(job is not None for job, _ in after):
                    dependencies = tuple(
                        Dependency(job=job, condition=condition) for job, condition in after if job is not None
                    )
                    asked = msgspec.structs.replace(wish.request, after=dependencies)
                    lines.append(msgspec.json.encode(Wish(client_token=token, request=asked)).decode())
            elif wish.request.hold and self.ids[token] not in self.released:
                lines.append(f"release {self.ids[token]}")
            elif self.is_to_requeue(token):
                lines.append(f"requeue {self.ids[token]}")
        return lines

    def is_to_requeue(self, token: str) -> bool:
        """Whether it is a job that saves, has started, and was not requeued yet."""
        job = self.ids[token]
        saves = self.wanted[token].request.checkpoint is not None
        return saves and job not in self.requeued and has_started(self.root, job)

    def ask(self, process: PipedProgram, most: int) -> int:
        """Ask for some of what is left; how much was asked for."""
        lines = self.left()[:most]
        for line in lines:
            word, _, number = line.partition(" ")
            if word == "release" and int(number) not in self.asked_to_go:
                self.asked_to_go.add(int(number))
                assert not has_started(self.root, int(number)), f"job {number} started while it was held"
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("".join(f"{line}\n" for line in lines))
            process.stdin.flush()
        return len(lines)

    def disturb(self, rng: random.Random) -> None:
        """Signal one process of a component, whichever it is."""
        if found := processes_of(self.root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(
                    rng.choice(found), rng.choice([signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV])
                )
                self.signals += 1


def storm(parent: Parent, rng: random.Random) -> int:
    """Kill child after child at random moments, from its first breath on; how many were killed."""
    kills = 0
    for _ in range(KILLS):
        with parent.child() as process:
            if rng.random() < 0.25:
                time.sleep(rng.uniform(0.0, 1.5))  # while it opens, or recovers
            else:
                assert process.stdout.readline() == "open\n", parent.errors.read_text()
                parent.ask(process, rng.randint(1, 1 + 3 * JOBS // KILLS))
                for _ in range(SIGNALS):
                    time.sleep(rng.uniform(0.0, 0.5))
                    parent.disturb(rng)
                time.sleep(rng.uniform(0.0, 2.0))
            kills += process.poll() is None
    return kills


def finish(parent: Parent) -> None:
    """Let the last child see everything to its end, and stop it cleanly."""
    with parent.child() as process:
        assert process.stdout.readline() == "open\n", parent.errors.read_text()
        while asked := parent.ask(process, JOBS):
            for _ in range(asked):
                line = process.stdout.readline()
                assert line, parent.errors.read_text()
                parent.take(line)
        asyncio.run(all_ended(parent.database))
        process.stdin.write("stop\n")
        process.stdin.flush()
        assert process.wait(PATIENCE_S) == 0, parent.errors.read_text()


def has_started(root: Path, number: int) -> bool:
    log = root / "log"
    return log.exists() and f"start {number} " in log.read_text()


def open_rows(database: str) -> tuple[int, int, int]:
    """How many jobs live, components are held and commands are owed, by what is on record."""
    count = "SELECT count(*) FROM"
    query = (
        f"SELECT ({count} jobs WHERE ended_at IS NULL), ({count} components WHERE ended_at IS NULL), ({count} outbox)"
    )
    engine = sqlalchemy.create_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.connect() as connection:
            live, held, owed = connection.execute(sqlalchemy.text(query)).one()
            return live, held, owed
    finally:
        engine.dispose()


async def all_ended(database: str) -> None:
    """Wait until every job has ended, by what the store says."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        live, held, owed = open_rows(database)
        if live == held == owed == 0:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{live} jobs live, {held} components are held, {owed} commands are owed")


@contextlib.contextmanager
def database_for(root: Path) -> Iterator[str]:
    if DATABASE == "sqlite":
        yield f"sqlite:///{root / 'koala.db'}"
    else:
        with postgres_server() as server:
            yield server.new_database()


@pytest.mark.timeout(PATIENCE_S + 120)
def test_a_daemon_killed_at_random_points_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with database_for(tmp_path) as database:
        kill_and_check(tmp_path, database)


def kill_and_check(tmp_path: Path, database: str) -> None:
    rng = random.Random(SEED)
    parent = Parent(tmp_path, database, wishes(tmp_path, rng))
    kills = storm(parent, rng)
    finish(parent)
    assert kills >= KILLS * 3 // 4, "nearly all children were killed while they worked"
    store = Store.open(database)
    try:
        jobs = {token: store.job(number) for token, number in parent.ids.items()}
        assert {token: job.state if job else None for token, job in jobs.items()} == dict.fromkeys(jobs, "done")
        assert len(store.jobs(limit=1_000)) == JOBS
        ended = [job for job in jobs.values() if job is not None]
        elements = check_arrays(store, ended)
        check_order(store, parent)
        saves = check_saved(tmp_path, ended)
        ran = [job for job in ended if job.elements is None] + elements
        components = [row for job in ran for row in store.components(job.id)]
        check_applications(tmp_path, ran, components, parent.requeued)
        asyncio.run(check_nothing_is_held(tmp_path, store))
        outputs = check_outputs(tmp_path, store, ran, components)
    finally:
        store.close()
    assert processes_of(tmp_path) == []
    runs, preemptions = sum(job.runs for job in ran), sum(job.preemptions for job in ran)
    kept_back = f"{len(elements)} elements, {len(parent.released)} released, {len(parent.requeued)} requeued"
    story = f"{kept_back}, {outputs} outputs, {saves} saves, {runs} runs, {preemptions} preemptions"
    sys.stdout.write(
        f"seed {SEED}: {JOBS} jobs, {kills} kills, {parent.signals} signals, {story}, {len(components)} components\n"
    )


def check_arrays(store: Store, jobs: list[StoredJob]) -> list[StoredJob]:
    """Every element of every array was made once and is done; all of them."""
    found = []
    for array in jobs:
        if array.elements is not None:
            elements = store.jobs(array=array.id, limit=1_000)[::-1]
            assert [(row.id, row.array_index) for row in elements] == [
                (array.id + 1 + position, ARRAY.index_at(position)) for position in range(ARRAY.size)
            ]
            assert {row.state for row in elements} == {"done"}
            assert array.elements.done == array.elements.size == ARRAY.size
            found += elements
    return found


def check_saved(root: Path, jobs: list[StoredJob]) -> int:
    """Each run that saved its state went on from what the one before had saved last, and found it whole; how many
    saved."""
    assert not (root / "half").exists(), (root / "half").read_text()
    saved: dict[tuple[int, str], list[int]] = {}
    for line in (root / "saved").read_text().splitlines():
        job, component, number = line.split()
        saved.setdefault((int(job), component), []).append(int(number))
    assert any(len(saves) > 1 for saves in saved.values()), "each of these jobs fails once, and runs again"
    # The parts of a flexible job go on from what the first of them saved, and there may be more of them than before.
    divided = {job.id for job in jobs if int(job.name.removeprefix("job-")) % 4 == FLEXIBLE}
    lost = [
        (place, saves)
        for place, saves in saved.items()
        if (place[1] == "0" or place[0] not in divided) and saves != sorted(set(saves))
    ]
    assert lost == []
    return sum(map(len, saved.values()))


def check_outputs(root: Path, store: Store, jobs: list[StoredJob], components: list[ComponentRow]) -> int:
    """What the last runs made is in the catalogue, nothing else is, and every replica has these bytes; how many
    outputs there are."""
    made: dict[str, tuple[ComponentRow, JobOutput]] = {}
    for job in jobs:
        if int(job.name.partition("[")[0].removeprefix("job-")) % 10 in MAKES:
            for row in components:
                if row.job == job.id and row.run == job.runs and row.outcome == "done":
                    made[output_name(job.id, row.part, "result")] = row, OUTPUTS[0]
                    made[output_name(job.id, row.part, "logs.tar")] = row, OUTPUTS[1]
    entries = {entry.name: entry for entry in store.files(prefix=OUTPUT_PREFIX, limit=10_000)}
    assert entries.keys() == made.keys(), "no output is lost, and none is there that nobody made"
    for name, (row, output) in made.items():
        entry = entries[name]
        assert {each.site for each in entry.replicas} == {row.site, output.to or row.site}
        for replica in entry.replicas:
            data = (root / "sites" / replica.site / "files" / replica_path(name)).read_bytes()
            assert hashlib.sha256(data).hexdigest() == entry.checksum
            assert len(data) == entry.size_bytes
            assert what_was_made(data, output) == f"{row.job} {row.part} {row.token}\n".encode()
    there = {path.relative_to(root) for path in root.glob("sites/*/files/replicas/*")}
    known = {
        Path("sites", replica.site, "files", replica_path(entry.name))
        for entry in store.all_files()
        for replica in entry.replicas
    }
    assert {path.name for path in there - known if "checkpoint" not in path.name} == set()
    assert known - there == set()
    return len(made)


def what_was_made(data: bytes, output: JobOutput) -> bytes:
    """Who made it, by what is in it."""
    if output.path == "logs":
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            note = archive.extractfile("note")
            assert note is not None
            assert archive.getnames() == ["note"]
            return note.read()
    who, _, rest = data.partition(b"\n")
    assert rest == b"x" * 20_000
    return who + b"\n"


def check_order(store: Store, parent: Parent) -> None:
    """Nobody started before what it waited for."""
    for token, number in parent.ids.items():
        for other, condition in waits_for(int(token.removeprefix("wish-"))):
            before = parent.ids[f"wish-{other}"]
            job = store.job(before)
            assert job is not None
            first = min(started(store, number))
            assert (
                first >= (job.ended_at or 0.0)
                if condition is Condition.DONE
                else first >= min(started(store, before))
            )


def started(store: Store, number: int) -> list[float]:
    """When the barriers of the job opened."""
    return [row.released_at for row in store.components(number) if row.released_at is not None]


def check_applications(root: Path, jobs: list[StoredJob], components: list[ComponentRow], requeued: Set[int]) -> None:
    """What the applications wrote and what is on record tell the same story."""
    by_token = {row.token: row for row in components}
    started: dict[str, int] = {}
    running: dict[tuple[int, int], str] = {}
    for line in (root / "log").read_text().splitlines():
        word, number, part, token = line.split()
        place = (int(number), int(part))
        if word == "start":
            started[token] = started.get(token, 0) + 1
            before = running.get(place)
            if before is not None:
                # One that was killed by force could not note its end, but its site did, before the next was released.
                assert by_token[before].outcome == "aborted" or SIGNALS, f"{place} ran twice at once"
                assert (by_token[before].ended_at or 0.0) <= (by_token[token].released_at or 0.0)
            running[place] = token
            assert by_token[token].released_at is not None, f"{token} ran without being released"
        elif running.get(place) == token:
            del running[place]
    assert set(started.values()) == {1}, "no start of a component ran twice"
    for row in components:
        assert row.ended_at is not None
        if row.outcome == "done":
            assert started.get(row.token) == 1
        if row.released_at is None:
            assert row.token not in started
    for job in jobs:
        name = job.name.partition("[")[0]
        assert name in {f"job-{number}" for number in range(JOBS)}
        last = [row for row in components if row.job == job.id and row.run == job.runs and row.outcome == "done"]
        assert sorted(row.part for row in last) == list(range(last[0].parts)), (
            f"job {job.id} is done in all its parts"
        )
        assert {row.released_at for row in last} == {job.started_at}
        if int(name.removeprefix("job-")) % 5 == 0:
            assert job.runs >= 2
            # A failure in the very moment of a preemption, or of a requeue, is not counted: the run was over already.
            assert job.failures + job.preemptions >= 1 or job.id in requeued


async def check_nothing_is_held(root: Path, store: Store) -> None:
    """A fresh engine on the same state finds nothing to do, and the sites hold nothing."""
    engine = Engine(grid(), Catalogue.builtin(), store, root)
    await engine.open()
    try:
        assert not engine.outbox.commands
        assert not engine.scheduler.ledger.claims
        assert not engine.scheduler.ledger.jobs
        assert not engine.mover.transfers
        areas = FileService(engine)
        await areas.open()
        await areas.close()
        assert [each for area in engine.areas.values() for each in await area.doubts()] == []
        for name in "abc":
            site = engine.site(name)
            assert isinstance(site, LocalSite)
            assert site.processors_held == 0
            assert await site.held() == ()
            area = local_areas(engine)[name].root
            assert list((area / "copies").iterdir()) == []
            assert list((area / "trash").iterdir()) == []
            for file, sites in FILE_SITES.items():
                if name in sites:
                    assert local_areas(engine)[name].replica(file).read_bytes() == DATA
        assert {row.owner for row in store.jobs(limit=1_000)} == {OWNER}
    finally:
        await engine.close()
