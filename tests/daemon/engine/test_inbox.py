"""No more waits to be handled than a limit: callers are refused, sites are asked again for what was passed over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.daemon.engine.inbox import Inbox, InboxItem
from koala.model.errors import TooManyError
from koala.model.messages import ComponentReady, JobQuarantined, SiteReported, Tick, TransferEnded
from tests.support.engine_world import a_request, disturbed, local_grid, open_engine, root

__all__ = ["root"]


def test_a_full_inbox_refuses_callers_and_passes_over_what_sites_say_again() -> None:
    async def scenario() -> None:
        inbox = Inbox(2)
        inbox.put(InboxItem(event=Tick(at=0.0)))
        inbox.put(InboxItem(event=Tick(at=0.0)))
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(TooManyError, match="INBOX_ITEMS_MAX"):
            inbox.put(InboxItem(event=Tick(at=0.0), answer=answer))  # type: ignore[arg-type]
        inbox.put(InboxItem(event=ComponentReady(at=0.0, token="1.1")))  # noqa: S106
        inbox.put(InboxItem(event=SiteReported(at=0.0, site="a", processors=1, others=0)))
        assert len(inbox) == 2
        inbox.put(InboxItem(event=TransferEnded(at=0.0, transfer="t1", ok=True)))
        inbox.put(InboxItem(event=JobQuarantined(at=0.0, job=1, reason="a defect")))
        assert len(inbox) == 4
        assert not inbox.has_room_again()
        inbox.take(3)
        assert inbox.has_room_again()
        assert not inbox.has_room_again()

    asyncio.run(scenario())


def test_what_was_passed_over_is_asked_for_when_there_is_room(root: Path) -> None:
    """The end of a component comes while the inbox is full, and nobody would ever ask for it by himself."""

    async def scenario() -> None:
        store = disturbed(root)
        grid = local_grid((4,), check_interval_s=None)
        async with open_engine(root, grid, store=store, inbox_items_max=8) as world:
            job = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done"))
            await world.in_state(job, "running")
            await world.until(lambda: not world.engine.outbox.commands and not world.engine.outbox.has_settled())
            store.gate.clear()
            call = asyncio.create_task(world.submit(a_request()))
            # The batch that is being written has it, or a report that came before.
            await world.until(lambda: len(world.engine.scheduler.ledger.jobs) == 2 or len(world.engine._inbox) > 0)
            for number in range(100):
                world.engine.report(SiteReported(at=0.0, site="a", processors=4, others=number % 2))
            (root / "gate").touch()
            await world.until(lambda: world.site("a").processors_held == 0)
            with pytest.raises(TooManyError, match="INBOX_ITEMS_MAX"):
                await world.submit(a_request())
            store.gate.set()
            rows = await world.ended(job, await call)
            assert [row.state for row in rows] == ["done", "done"]
            assert (await world.run(a_request())).state == "done"

    asyncio.run(scenario())
