"""Callers with tokens for other users on a grid whose sites run jobs under the daemon's account."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from koala.daemon.service.principal import Principal
from koala.model.api import Scope
from koala.model.api.questions import Submission
from koala.model.grid import Grid
from tests.support.api_world import GRID, OWNER, QUICK_JOB, World, error_of, in_world
from tests.support.daemon_world import open_daemon

CLOSED = msgspec.structs.replace(GRID, shared_account=False)
WEST, EAST = CLOSED.sites
HALF: Grid = msgspec.structs.replace(CLOSED, sites=(WEST, msgspec.structs.replace(EAST, own_account=True)))
JOB = {"description": QUICK_JOB}
JOB_AT_WEST = {"description": QUICK_JOB.replace("processors: 1", "processors: 1, site: west")}
TOKEN = {"user": "bob", "scopes": ["submit"]}


def test_where_every_site_shares_the_account_a_guest_submits_nothing_and_the_owner_all(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner, world.caller(await world.secret("bob", *Scope)) as bob:
            for route in ("/v1/jobs", "/v1/dry-runs"):
                refused = await bob.post(route, json=JOB)
                assert refused.status_code == 403
                assert "shared_account: true" in error_of(refused)["message"]
            assert (await owner.post("/v1/jobs", json=JOB)).status_code == 201
            assert (await owner.get("/v1/jobs")).json()["items"][0]["owner"] == OWNER
            assert "are refused" in (await owner.post("/v1/tokens", json=TOKEN)).json()["notice"]
            for wish in ({**TOKEN, "user": OWNER}, {**TOKEN, "scopes": ["read"]}):
                assert (await owner.post("/v1/tokens", json=wish)).json()["notice"] == ""
            assert (await owner.get("/readyz")).json()["warnings"] == []

    in_world(tmp_path, scene, grid=CLOSED)


def test_a_guests_job_runs_only_at_a_site_with_an_account_of_its_own(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner, world.caller(await world.secret("bob", *Scope)) as bob:
            refused = await bob.post("/v1/jobs", json=JOB_AT_WEST)
            assert refused.status_code == 403
            assert "do not run at west" in error_of(refused)["message"]
            tried = (await bob.post("/v1/dry-runs", json=JOB)).json()
            assert [each["site"] for each in tried["places"]] == ["east"]
            for _ in range(3):
                job = (await bob.post("/v1/jobs", json=JOB)).json()["job"]["id"]
                assert (await bob.get(f"/v1/jobs/{job}/wait?timeout_s=60")).json()["state"] == "done"
                detail = (await bob.get(f"/v1/jobs/{job}")).json()
                assert {each["site"] for each in detail["components"]} == {"east"}
            notice = (await owner.post("/v1/tokens", json=TOKEN)).json()["notice"]
            assert notice == "jobs of bob do not run at west, under the daemon's account"

    in_world(tmp_path, scene, grid=HALF)


def test_a_grid_that_shares_its_account_says_so_to_who_is_signed_in(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner, world.caller() as stranger:
            warning = (await owner.get("/readyz")).json()["warnings"][0]
            assert warning.startswith("shared_account: ")
            assert "jobs of all users run under the daemon's account at west, east" in warning
            assert (await owner.post("/v1/tokens", json=TOKEN)).json()["notice"] == warning
            assert (await stranger.get("/readyz")).json()["warnings"] == []

    in_world(tmp_path, scene)


def test_after_a_restart_a_guests_job_is_a_guests_still(tmp_path: Path) -> None:
    bob = Principal(name="bob", scopes=frozenset(Scope), guest=True)

    async def scene() -> None:
        async with open_daemon(tmp_path, HALF, leave_running=True) as daemon:
            await daemon.service.grid.drain(bob, "east")
            job = (await daemon.service.submit(bob, Submission(description=QUICK_JOB))).job.id
        async with open_daemon(tmp_path, HALF) as daemon:
            assert daemon.engine.scheduler.ledger.jobs[job].guest
            told = await daemon.service.explain(bob, job)
            assert told.state == "waiting"
            assert any("closed to it: west, which would run it under the account" in line.text for line in told.story)

    asyncio.run(scene())
