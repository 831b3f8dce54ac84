"""Tasks are spawned into a job that runs at embedded sites, and belong to it from then on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

import pytest

from koala.daemon.service.principal import Principal
from koala.model.api.questions import SpawnWish
from koala.model.errors import ConflictError, InvalidError, NotFoundError
from tests.support.daemon_world import ANNA, BERT, OWNER, DaemonWorld, open_daemon, small_grid


def job(flag: Path) -> str:
    """Two tasks that run until there is a file, or for five minutes."""
    return f"""\
application:
  script: |
    echo "$KOALA_TASKS of $KOALA_COMPONENTS"
    looks=0
    while [ ! -e '{flag}' ] && [ $looks -lt 3000 ]; do sleep 0.1; looks=$((looks + 1)); done
mcr: 1
tasks: {{a: 1, b: 1}}
edges: [[a, b, 1]]
"""


async def spawn(
    world: DaemonWorld, number: int, text: str, who: Principal = OWNER
) -> list[tuple[int, str, list[str]]]:
    service = world.service
    tasks = await service.spawned_tasks(who, number, SpawnWish(description=text, source="more.yaml"))
    found = await service.changes.spawn(who, number, tasks)
    return [(each.part, each.site, each.tasks) for each in found.components]


def test_spawned_tasks_run_near_their_partners_and_survive_a_restart(tmp_path: Path) -> None:
    flag, grid = tmp_path / "flag", small_grid((3, 3))
    more = "tasks: {c: 1, d: 1}\nedges: [[c, a, 5], [d, c, 1]]\n"

    async def story() -> None:
        async with open_daemon(tmp_path / "daemon", grid, leave_running=True) as world:
            number = await world.start(job(flag))
            await world.in_state(number, "running")
            near = await spawn(world, number, more)
            assert near == [(1, "A", ["c"]), (2, "B", ["d"])], "A has room for one"
            assert await spawn(world, number, more) == near, "the same again changes nothing"

            async def all_released() -> bool:
                components = (await world.service.job(OWNER, number)).components
                return len(components) == 3 and all(each.released_at for each in components)

            await world.until(all_released)
            told = await world.service.job(OWNER, number)
            assert (told.processors, [place.site for place in told.places]) == (4, ["A", "A", "B"])
            assert {each.run for each in told.components} == {1}
            assert told.asked == "2 processors, and 2 for spawned tasks"
        async with open_daemon(tmp_path / "daemon", grid) as world:
            assert (await world.service.job(OWNER, number)).state == "running"
            with pytest.raises(InvalidError, match=r"more\.yaml:1:9: the job has a task 'c' already"):
                await spawn(world, number, "tasks: {c: 2}\n")
            flag.touch()
            assert (await world.ended(number)).state == "done"
            printed = [
                await world.service.output(OWNER, number, part=part, run=None, stream="stdout", offset=0, limit=100)
                for part in range(3)
            ]
            assert [each.text for each in printed] == ["a b of 1\n", "c of 3\n", "d of 3\n"]
            with pytest.raises(ConflictError, match="is done: tasks are spawned into a job that runs"):
                await spawn(world, number, "tasks: {e: 1}\n")

    asyncio.run(story())


def test_who_may_and_what_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_daemon(tmp_path / "daemon", small_grid((2,))) as world:
            number = await world.start(job(tmp_path / "never"), ANNA)
            await world.in_state(number, "running")
            with pytest.raises(NotFoundError):
                await spawn(world, number, "tasks: {c: 1}\n", BERT)
            lack = f"job {number}: the task takes a processor, and none is idle for it: 1 is missing; spawn it when"
            with pytest.raises(ConflictError, match=lack) as caught:
                await spawn(world, number, "tasks: {c: 1}\n", ANNA)
            assert caught.value.code == "no_place"
            with pytest.raises(InvalidError, match=r"more\.yaml:2:13: there is no task 'x'; known here: c, a, b"):
                await spawn(world, number, "tasks: {c: 1}\nedges: [[c, x, 1]]\n", ANNA)
            with pytest.raises(InvalidError, match="joins none of the new tasks"):
                await spawn(world, number, "tasks: {c: 1}\nedges: [[a, b, 1]]\n", ANNA)

    asyncio.run(story())


def test_a_silent_site_where_the_job_has_nothing_left_does_not_keep_spawned_tasks_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a restart, when nobody knows any more which nodes it had there."""
    flag, grid = tmp_path / "flag", small_grid((1, 3))
    ends_at_once = f"""\
application:
  script: |
    touch "{tmp_path}/began-$KOALA_TASKS"
    case "$KOALA_TASKS" in *a*) exit 0;; esac
    looks=0
    while [ ! -e '{flag}' ] && [ $looks -lt 3000 ]; do sleep 0.1; looks=$((looks + 1)); done
mcr: 1
tasks: {{a: 1, b: 1}}
"""

    async def off(token: str) -> NoReturn:
        raise OSError("no route to host")

    async def spawns_beside_a_silent_site(world: DaemonWorld, number: int, name: str) -> None:
        components = (await world.service.job(OWNER, number)).components
        (gone,) = [each.site for each in components if each.ended_at is not None]
        monkeypatch.setattr(world.engine.site(gone), "nodes", off)
        assert len(await spawn(world, number, f"tasks: {{{name}: 1}}\nedges: [[{name}, b, 5]]\n")) == 1

        async def runs() -> bool:
            return (tmp_path / f"began-{name}").exists()

        await world.until(runs)

    async def story() -> None:
        async with open_daemon(tmp_path / "daemon", grid, leave_running=True) as world:
            number = await world.start(ends_at_once)
            await world.in_state(number, "running")

            async def one_ended() -> bool:
                return any(each.ended_at for each in (await world.service.job(OWNER, number)).components)

            await world.until(one_ended)
            await spawns_beside_a_silent_site(world, number, "c")
        async with open_daemon(tmp_path / "daemon", grid) as world:
            await spawns_beside_a_silent_site(world, number, "d")
            flag.touch()
            told = await world.ended(number)
            assert (told.state, told.runs) == ("done", 1)

    asyncio.run(story())
