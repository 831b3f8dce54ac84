"""The example job ``laplace``, as it ships, on two embedded sites."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from koala.cli.examples import read_named
from koala.descriptions import read_job
from koala.model.launch import Peer
from koala.model.messages import Outcome
from koala.model.request import JobType
from koala.runners import PROXY, go_for, proxy_mail
from tests.support.live_sites import launch, opened

BIN = str(Path(sys.executable).parent)


def test_the_shipped_laplace_job_runs_over_two_sites(tmp_path: Path) -> None:
    request = read_job(*read_named("job", "laplace"))
    assert request.job_type is JobType.MPI
    assert request.flexible is not None
    (whole,) = request.components
    sizes = (5, whole.processors - 5)
    tokens = ("1.1", "1.2")

    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=8) as one, opened(tmp_path / "b", processors=8) as two:
            sites = (one, two)
            peers = [Peer(part=part, host="127.0.0.1", processors=size) for part, size in enumerate(sizes)]
            for part, site in enumerate(sites):
                await site.start(
                    launch(
                        tokens[part],
                        whole.application,
                        processors=sizes[part],
                        part=part,
                        parts=2,
                        job_type=request.job_type,
                        search_path=(BIN,),
                    )
                )
            for part, go in enumerate(go_for(request.job_type, 1, peers)):
                await sites[part].ready(tokens[part])
                await sites[part].site.release(tokens[part], go)
            await one.until(lambda: bool(one.mail))
            for part, data in enumerate(proxy_mail(one.mail[0].data, components=2)):
                await sites[part].site.deliver(tokens[part], PROXY, data)
            ends = [await site.ended(token) for site, token in zip(sites, tokens, strict=True)]
            assert [end.outcome for end in ends] == [Outcome.DONE] * 2
            told = await one.stdout(tokens[0])
            assert "laplace, 64 x 64 points" in told
            assert "2, with 5 + 3 processes" in told

    asyncio.run(scenario())
