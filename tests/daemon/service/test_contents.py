"""Programs that travel with jobs, at the service: who may refer to what, how much, and when it goes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from koala.daemon.service.data.contents import ContentService
from koala.daemon.service.principal import Principal
from koala.daemon.service.submitted_texts import Unreadable, read_submission
from koala.model.api import Scope
from koala.model.api.questions import Submission
from koala.model.errors import ConflictError, ForbiddenError, InvalidError, TooLargeError
from koala.model.travelling import PIECE_BYTES_MAX, TRAVELLING_BYTES_MAX, TravellingFile, write_manifest
from tests.support.daemon_world import ANNA, BERT, OWNER, DaemonWorld, open_daemon

PROGRAM = b"#!/bin/sh\ntest -x ./run && cat config/a\n"
CONFIG = b"seven\n"
JOB = "application: {executable: ./run}\nfiles: [run, config/]\ncomponents: [{processors: 1}, {processors: 1}]\n"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


FILES = (
    TravellingFile(path="run", size_bytes=len(PROGRAM), checksum=digest(PROGRAM), mode=0o755),
    TravellingFile(path="config", directory=True, mode=0o755),
    TravellingFile(path="config/a", size_bytes=len(CONFIG), checksum=digest(CONFIG)),
)


def wish(files: tuple[TravellingFile, ...] = FILES, text: str = JOB) -> Submission:
    return Submission(description=text, source="job.yaml", files=write_manifest(files) if files else None)


async def send(world: DaemonWorld, data: bytes, who: Principal = OWNER) -> None:
    assert (await world.service.receive_content(who, digest(data), len(data), 0, data)).complete


def in_daemon(root: Path, scene: Callable[[DaemonWorld], Awaitable[None]]) -> None:
    async def play() -> None:
        async with open_daemon(root) as world:
            await scene(world)

    asyncio.run(play())


def test_a_program_travels_to_each_component_and_goes_when_its_job_has_ended(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        service = world.service
        missing = (await service.missing_contents(OWNER, write_manifest(FILES))).missing
        assert {each.checksum: each.received_bytes for each in missing} == dict.fromkeys(
            (digest(PROGRAM), digest(CONFIG)), 0
        )
        with pytest.raises(InvalidError, match="you have not sent its content"):
            await service.submit(OWNER, wish())
        await send(world, PROGRAM)
        await send(world, CONFIG)
        assert not (await service.missing_contents(OWNER, write_manifest(FILES))).missing
        job = (await service.submit(OWNER, wish())).job.id
        sweeper = ContentService(world.engine, grace_s=0.0)
        assert await sweeper.sweep() == [], "a live job needs them"
        assert (await world.ended(job)).state == "done"
        for part in range(2):
            assert (await service.output(OWNER, job, part=part)).text == "seven\n"
        detail = await service.job(OWNER, job)
        assert [(each.path, each.kind, each.mode) for each in detail.files] == [
            ("config", "directory", "0755"),
            ("config/a", "file", "0644"),
            ("run", "file", "0755"),
        ]
        assert "files:\n- config\n- run\n" in detail.description
        assert sorted(await sweeper.sweep()) == sorted((digest(PROGRAM), digest(CONFIG)))
        assert not list((world.root / "contents" / "bundles").iterdir())

        async def copies_gone() -> bool:
            areas = (world.root / "sites").glob("*/files/copies/*")
            return not list(areas)

        await world.until(copies_gone)

    in_daemon(tmp_path / "daemon", scene)


def test_a_job_waits_for_its_files_and_says_so(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        await send(world, PROGRAM)
        await send(world, CONFIG)
        go_on, mover = asyncio.Event(), world.engine.mover
        sending = mover.send

        async def held_up(*arguments: object) -> object:
            await go_on.wait()
            return await sending(*arguments)  # type: ignore[arg-type]

        mover.send = held_up  # type: ignore[method-assign, assignment]
        job = (await world.service.submit(OWNER, wish())).job.id

        async def told() -> bool:
            return "it waits for its files at" in (await world.service.explain(OWNER, job)).meaning

        await world.until(told)
        go_on.set()
        assert (await world.ended(job)).state == "done"

    in_daemon(tmp_path / "daemon", scene)


def test_rights_limits_and_wrong_contents(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        service = world.service
        reader = Principal(name="rita", scopes=frozenset({Scope.READ}))
        with pytest.raises(ForbiddenError):
            await service.receive_content(reader, digest(CONFIG), len(CONFIG), 0, CONFIG)
        await send(world, PROGRAM, ANNA)
        await send(world, CONFIG, ANNA)
        with pytest.raises(InvalidError, match="you have not sent"):
            await service.submit(BERT, wish())
        with pytest.raises(ConflictError, match="another SHA-256"):
            await service.receive_content(BERT, digest(PROGRAM), 3, 0, b"bad")
        with pytest.raises(ConflictError, match="continue at byte 0"):
            await service.receive_content(BERT, digest(PROGRAM), len(PROGRAM), 4, b"bad")
        assert world.engine.contents.path(digest(PROGRAM)).read_bytes() == PROGRAM
        with pytest.raises(TooLargeError, match="TRAVELLING_BYTES_MAX"):
            await service.receive_content(BERT, digest(PROGRAM), TRAVELLING_BYTES_MAX + 1, 0, b"")
        with pytest.raises(TooLargeError, match="PIECE_BYTES_MAX"):
            await service.receive_content(BERT, digest(PROGRAM), 2**21, 0, b"x" * (PIECE_BYTES_MAX + 1))
        with pytest.raises(InvalidError, match="SHA-256"):
            await service.receive_content(BERT, "../" * 21 + "x", 3, 0, b"bad")
        guest = Principal(name="gast", scopes=frozenset({Scope.SUBMIT}), guest=True)
        small = ContentService(world.engine, guest_bytes_max=10, user_bytes_max=20, contents_max=1)
        assert not (await small.receive(guest, digest(CONFIG), 10, 0, b"12345")).complete
        with pytest.raises(TooLargeError, match="GUEST_CONTENT_BYTES_MAX"):
            await small.receive(guest, digest(b"x"), 1, 0, b"x")
        with pytest.raises(TooLargeError, match="USER_CONTENT_BYTES_MAX"):
            await small.receive(BERT, digest(b"x"), 21, 0, b"x")
        await small.receive(BERT, digest(b""), 0, 0, b"")
        with pytest.raises(TooLargeError, match="USER_CONTENTS_MAX"):
            await small.receive(BERT, digest(b"x"), 1, 0, b"x")

    in_daemon(tmp_path / "daemon", scene)


@pytest.mark.parametrize(
    ("files", "text", "said"),
    [
        ((), JOB, "'config': is named in the job and was not sent"),
        (FILES[1:], JOB, "'run': is named in the job and was not sent"),
        (FILES, JOB.replace("./run", "./walk"), "'./walk' is not among the files that travel"),
        (FILES, JOB.replace("./run", "config/a"), "no x bit"),
        (FILES, "input_files: [{name: f, path: config}]\n" + JOB, "is also a file that travels with the job"),
        (
            FILES,
            "input_files: [{name: f, path: ./run/x}]\n" + JOB,
            "'run/x' would be below 'run', a file that travels",
        ),
        (FILES, "input_files: [{name: f, path: .koala-files}]\n" + JOB, "a name of Koala's own"),
        (FILES, JOB.replace("run,", "/etc/passwd,"), "is absolute"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_on_record(
    files: tuple[TravellingFile, ...], text: str, said: str
) -> None:
    read = read_submission(wish(files, text), ("A",), ("WF",))
    assert isinstance(read, Unreadable)
    assert said in read.message
