"""Whose a work directory is, as a check of its site sees it in a real shell: it looks, and claims nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from koala.model.grid import BatchSettings, Site
from koala.sites.batch.check.check import CheckContext, Finding, StepStatus, check_batch_site, steps_for
from koala.sites.batch.systems import SYSTEMS
from koala.sites.remote_shell import RemoteShell
from tests.support.paper_batch import PaperSite
from tests.support.played_site import PlainSystem


async def looked(root: Path, owner: str) -> Finding:
    """What the step finds for somebody who would use the site of ``PaperSite``."""
    site = Site(name="alpha", processors=8, kind="slurm", batch=BatchSettings(work_directory=str(root / "work")))
    checks = SYSTEMS["slurm"].parts().checks
    context = CheckContext(
        site, RemoteShell(), PlainSystem, checks, owner=owner, clock=time.time, nonce="abcd", patience_s=1.0
    )
    steps = [step for step in steps_for(site, checks, run=False) if step.name in ("shell", "work directory", "owner")]
    return [finding async for finding in check_batch_site(context, steps)][-1]


def test_a_check_tells_whose_a_work_directory_is_and_claims_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = await looked(tmp_path, "me:/state site alpha")
        assert (first.step, first.sign) == ("owner", StepStatus.PASSED)
        assert list((tmp_path / "work").iterdir()) == []
        # Who comes next gets it, and has it from then on.
        async with PaperSite(tmp_path, owner="you:/state site alpha"):
            pass
        mine, yours = [await looked(tmp_path, f"{who}:/state site alpha") for who in ("me", "you")]
        assert mine.sign is StepStatus.FAILED
        assert "in use by another Koala, or for another site: you:/state site alpha" in mine.words
        assert f"remove {tmp_path}/work/owner if that one is gone for good" in mine.advice
        assert yours.sign is StepStatus.PASSED

    asyncio.run(scenario())


def test_what_is_there_in_place_of_an_owner_is_told(tmp_path: Path) -> None:
    (tmp_path / "work" / "owner").mkdir(parents=True)
    found = asyncio.run(looked(tmp_path, "me:/state site alpha"))
    assert found.sign is StepStatus.FAILED
    assert found.words == f"{tmp_path}/work/owner: it is not a plain file"
