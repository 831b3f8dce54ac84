"""Checkpoints on embedded sites: asked for before the end, whole or absent, and brought to the next run anywhere."""

from __future__ import annotations

import asyncio
import errno
import os
from functools import partial
from pathlib import Path

import pytest

from koala.daemon.perform.transfers import TransferWorker
from koala.daemon.upkeep.retention import Retention
from koala.files import ChecksumError
from koala.files.area.workspace import CollectedFile
from koala.model.checkpoint import Checkpoint, CheckpointSignal
from koala.model.messages import RestartAsked, SiteDrained
from tests.support.engine_world import a_request, local_grid, open_engine, root

__all__ = ["root"]

SAVING = Checkpoint(directory="ckpt", signal=CheckpointSignal.USR1, grace_s=60.0)
# The shell that is asked saves a number, aside and then by its name, and ends; the next run goes on from the number.
COUNTS = """\
number=$(cat "$KOALA_CHECKPOINT/number" 2>/dev/null || echo 0)
trap 'echo $((number + 1)) >"$KOALA_CHECKPOINT/number.part"; cp "$KOALA_CHECKPOINT/number.part" \
"$KOALA_CHECKPOINT/half.part"; mv "$KOALA_CHECKPOINT/number.part" "$KOALA_CHECKPOINT/number"; exit 0' USR1
echo "run $KOALA_RUN at $number: $(ls "$KOALA_CHECKPOINT" | tr '\\n' ' ')"
if [ "$KOALA_RUN" -ge 3 ]; then exit 0; fi
: >"%s/begun.$KOALA_COMPONENT.$KOALA_RUN"
while :; do sleep 0.1; done
"""


def _archives(root: Path) -> list[str]:
    """The archives of checkpoints at all sites."""
    return [path.name for path in root.glob("sites/*/files/replicas/*checkpoint*")]


def _are_there(paths: list[Path]) -> bool:
    return all(path.exists() for path in paths)


def test_a_requeued_job_is_asked_to_save_and_goes_on_from_there_at_another_site(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((2, 2, 2))) as world:
            job = await world.submit(a_request(COUNTS % root, sizes=(2, 2), checkpoint=SAVING))
            for run in (1, 2):
                begun = [root / f"begun.{part}.{run}" for part in (0, 1)]
                await world.until(partial(_are_there, begun))
                if run == 1:
                    first = {row.part: row.site for row in world.store.components(job)}
                    await world.engine.tell(SiteDrained(at=0.0, site=first[0]))
                await world.engine.tell(RestartAsked(at=0.0, job=job))
            (row,) = await world.ended(job)
            assert (row.state, row.runs, row.failures) == ("done", 3, 0)
            for part in (0, 1):
                assert await world.output(job, part) == "run 3 at 2: number \n"
            last = [each for each in world.store.components(job) if each.run == 3]
            assert first[0] not in {each.site for each in last}
            story = world.story(job)
            assert any(f"made on {first[0]}" in line for line in story), story
            await world.all_given_back()
            assert _archives(root) != []
            sites = {site.name: world.engine.site(site.name) for site in world.engine.grid.sites}
            rows = world.engine.rows
            retention = Retention(world.engine, world.store, sites, lambda: rows, world.engine.areas, retention_s=0.0)
            assert await retention.step() == 6
            assert _archives(root) == [], "they go with the components"

    asyncio.run(scenario())


def test_what_a_component_saved_before_it_was_killed_is_there_and_what_it_was_writing_is_not(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1, 1), restart_rest_s=0.0)) as world:
            script = (
                'cd "$KOALA_CHECKPOINT"; if [ "$KOALA_RUN" = 1 ]; then echo whole >state; echo half >next.part; '
                "kill -9 $PPID; kill -9 $$; fi; ls; cat state"
            )
            row = await world.run(a_request(script, checkpoint=Checkpoint(directory="deep/er")))
            assert (row.state, row.runs) == ("done", 2)
            assert await world.output(row.id) == "state\nwhole\n"

    asyncio.run(scenario())


def test_components_that_share_a_checkpoint_all_go_on_from_what_the_first_one_saved(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((2, 2), restart_rest_s=0.0)) as world:
            script = (
                'if [ "$KOALA_RUN" = 1 ]; then echo "of $KOALA_COMPONENT" >"$KOALA_CHECKPOINT/state"; '
                f'[ "$KOALA_COMPONENT" = 1 ] || {{ touch {root}/saved; exit 0; }}; '
                f"until [ -e {root}/saved ]; do sleep 0.1; done; exit 1; fi; "
                'cat "$KOALA_CHECKPOINT/state"'
            )
            row = await world.run(a_request(script, sizes=(2, 2), checkpoint=Checkpoint(shared=True)))
            assert (row.state, row.runs) == ("done", 2)
            assert [await world.output(row.id, part) for part in (0, 1)] == ["of 0\n", "of 0\n"]

    asyncio.run(scenario())


def test_a_program_is_asked_every_so_often_and_before_its_walltime_is_over(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1, 1))) as world:
            ends_at = (
                'trap \'read -r n last <"$KOALA_CHECKPOINT_ASKED"; [ "$n" -lt %d ] || exit 0\' USR1; '
                '[ ! -e "$KOALA_CHECKPOINT_ASKED" ] || kill -USR1 $$; while :; do sleep 0.1; done'
            )
            often = Checkpoint(every_s=1.0, signal=CheckpointSignal.USR1)
            last = Checkpoint(signal=CheckpointSignal.USR1, grace_s=98.0)
            jobs = [
                await world.submit(a_request(ends_at % 2, checkpoint=often)),
                await world.submit(a_request(ends_at % 1, walltime_s=100.0, checkpoint=last)),
            ]
            assert [row.state for row in await world.ended(*jobs)] == ["done", "done"]

    asyncio.run(scenario())


# The second run replaces the checkpoint of the first by one that is too large, or by what nobody may follow.
REPLACES = """\
echo "run $KOALA_RUN: $(head -c 6 "$KOALA_CHECKPOINT/state")"
case $KOALA_RUN in
1) echo first >"$KOALA_CHECKPOINT/state"; exit 1 ;;
2) %s; exit 1 ;;
esac
"""
LARGE = 'head -c 200000 /dev/zero >"$KOALA_CHECKPOINT/state"'


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ('rm -rf "$KOALA_CHECKPOINT"; ln -s / "$KOALA_CHECKPOINT"', "it leads out of the workspace"),
        (LARGE, "it has more than 100000 bytes, holes included (output_bytes_max of the grid)"),
        (LARGE, "No space left on device; make room there, or let it save less"),
    ],
    ids=["outside", "limit", "disk"],
)
def test_a_checkpoint_that_cannot_be_kept_leaves_the_one_before_in_use(root: Path, second: str, problem: str) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,), restart_rest_s=0.0, output_bytes_max=100_000)) as world:
            area = world.engine.areas["a"]
            collect = area.collect

            async def on_a_small_disk(file: str, token: str, path: str) -> CollectedFile | None:
                saved = root / f"sites/a/components/{token}/workspace/{path}/state"
                if "No space" in problem and saved.stat().st_size > 100_000:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return await collect(file, token, path)

            area.collect = on_a_small_disk  # type: ignore[method-assign, assignment]
            row = await world.run(a_request(REPLACES % second, checkpoint=Checkpoint()))
            assert (row.state, row.runs) == ("done", 3)
            assert await world.output(row.id) == "run 3: first\n"
            story = world.story(row.id)
            (told,) = [line for line in story if problem in line]
            assert "continues from" in told
            assert "saved at a cannot be had" in told

    asyncio.run(scenario())


# The second run goes on from the first, at another site.
GOES_ON = """\
if [ "$KOALA_RUN" = 1 ]; then echo first >"$KOALA_CHECKPOINT/state"; : >"%s/begun"; while :; do sleep 0.1; done; fi
cat "$KOALA_CHECKPOINT/state" || echo nothing
"""


@pytest.mark.parametrize(
    ("at", "times", "output"),
    [("source", 1, "first\n"), ("source", 9, "nothing\n"), ("target", 1, "first\n")],
    ids=["mended", "damaged", "target"],
)
def test_an_archive_that_is_bad_is_made_once_more_and_a_bad_disk_elsewhere_loses_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, at: str, times: int, output: str
) -> None:
    checkpoint = TransferWorker.checkpoint
    tried: list[CollectedFile] = []

    async def on_bad_disks(
        worker: TransferWorker, token: str, file: str, source: str, target: str, made: CollectedFile
    ) -> str:
        tried.append(made)
        if len(tried) <= times:
            raise ChecksumError(
                file, source if at == "source" else target, "the bytes written differ from the bytes read"
            )
        return await checkpoint(worker, token, file, source, target, made)

    async def scenario() -> None:
        async with open_engine(root, local_grid((1, 1), restart_rest_s=0.0)) as world:
            job = await world.submit(a_request(GOES_ON % root, checkpoint=Checkpoint()))
            await world.until((root / "begun").exists)
            (first,) = world.store.components(job)
            await world.engine.tell(SiteDrained(at=0.0, site=first.site))
            await world.engine.tell(RestartAsked(at=0.0, job=job))
            (row,) = await world.ended(job)
            assert row.state == "done"
            assert await world.output(job) == output
            assert len(tried) == 2

    monkeypatch.setattr(TransferWorker, "checkpoint", on_bad_disks)
    asyncio.run(scenario())
