"""The numbers for monitoring: readable by a parser of OpenMetrics, and without a label that a caller could choose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from koala.core.life.states import JobState
from tests.support.api_world import WAITING_JOB, Stage, World


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("metrics")) as shared:
        yield shared


async def samples(world: World) -> list[Sample]:
    async with world.owner() as owner:
        answer = await owner.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]
    return [sample for family in families for sample in family.samples]


def value(found: list[Sample], name: str, **labels: str) -> float:
    """The one sample of this name with these labels."""
    fitting = [each.value for each in found if each.name == name and labels.items() <= each.labels.items()]
    assert len(fitting) == 1, (name, labels, fitting)
    return float(fitting[0])


def test_jobs_sites_and_queues_are_counted(stage: Stage) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            await owner.post("/v1/jobs", json={"description": WAITING_JOB})
        found = await samples(world)
        assert value(found, "koala_jobs", state="waiting") == 1
        assert {each.labels["state"] for each in found if each.name == "koala_jobs"} == {
            str(each) for each in JobState
        }
        assert value(found, "koala_queue_jobs", queue="low") == 1
        assert value(found, "koala_site_processors", site="west", holder="total") == 2
        assert value(found, "koala_site_processors", site="east", holder="idle") == 2
        assert value(found, "koala_site_state", site="west", state="drained") == 0
        assert value(found, "koala_working") == 1
        assert value(found, "koala_events_handled_total") > 0

    stage.play(scene)


def test_requests_are_counted_by_the_templates_of_routes(stage: Stage) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            for number in range(5):
                await owner.get(f"/v1/jobs/9{number}")
                await owner.get(f"/elsewhere/{number}")
                await owner.request(f"X{number}", "/healthz")
        found = await samples(world)
        name = "koala_http_requests_total"
        assert value(found, name, method="GET", route="/v1/jobs/{job}", status="404") == 5
        assert value(found, name, method="GET", route="unmatched", status="404") == 5
        assert value(found, name, method="other", status="405") == 5
        assert value(found, "koala_http_request_seconds_count", route="/v1/jobs/{job}") == 5

    stage.play(scene)


def test_no_label_holds_a_job_a_user_or_text_of_a_caller(stage: Stage) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            named = WAITING_JOB.replace("giant", "telltale")
            job = (await owner.post("/v1/jobs", json={"description": named})).json()["job"]["id"]
            await owner.get(f"/v1/jobs/{job}")
            await owner.get("/v1/files/telltale?prefix=telltale")
            await owner.get("/jobs/telltale")
        found = await samples(world)
        labels = {label for sample in found for label in sample.labels.values()}
        assert not any("telltale" in label or label == "ada" for label in labels)
        routes = {sample.labels["route"] for sample in found if "route" in sample.labels}
        assert not any(str(job) in route.split("/") for route in routes)

    stage.play(scene)
