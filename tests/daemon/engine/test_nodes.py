"""What becomes of the nodes that sites tell: every component learns all of them, and too few fail their site."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from koala.model.launch import NodeShare
from koala.model.messages import Token
from koala.sites import LiveSite
from koala.sites.local.site import LocalSite
from tests.support.engine_world import a_request, open_engine, root

__all__ = ["root"]


class SpreadSite(LocalSite):
    """An embedded site that says components are on two nodes, and so many times that one processor is missing."""

    shortages = 0

    async def nodes(self, token: Token) -> tuple[NodeShare, ...]:
        found = await super().nodes(token)
        if not found:
            return ()
        rest = found[0].processors - 1
        if self.shortages > 0:
            self.shortages -= 1
            rest -= 1
        return (NodeShare(found[0].name, 1), NodeShare("n2", rest))


def spread(description: Any, root: Path, **named: Any) -> LiveSite:
    """Makes such sites where the engine makes embedded ones."""
    return SpreadSite(description.name, root / "sites" / description.name, description.processors, **named)


def test_every_component_learns_the_nodes_of_all_and_its_share_of_each(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, site_maker=spread) as world:
            request = a_request('echo "$KOALA_NODES $KOALA_NODE_PROCESSORS"', sizes=(2, 2), sites="ab")
            row = await world.run(request)
            assert row.state == "done"
            for part in range(2):
                assert await world.output(row.id, part) == "127.0.0.1,n2;127.0.0.1,n2 1,1;1,1\n"

    asyncio.run(scenario())


def test_a_site_that_gives_fewer_processors_than_it_accepted_has_failed_and_nobody_runs(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, site_maker=spread) as world:
            site = world.site("b")
            assert isinstance(site, SpreadSite)
            site.shortages = 1
            row = await world.run(a_request(f"echo ran >>{root}/ran", sizes=(2, 3), sites="ab"))
            assert (row.state, row.runs) == ("done", 2)
            reasons = [each.reason for each in world.store.components(row.id) if each.site == "b"]
            assert reasons == ["it gave 2 processors instead of 3", ""]
            # Only those of the second run.
            assert (root / "ran").read_text() == "ran\n" * 2
            await world.all_given_back()

    asyncio.run(scenario())
