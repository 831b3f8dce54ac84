"""A job whose tasks no site can ever hold is told so, whatever its other parts are and whoever has not told of its
nodes."""

from __future__ import annotations

from typing import Any

import pytest

from koala.core import Scheduler
from koala.model.api import Refusal
from koala.model.grid import BatchSettings, Grid, Site
from koala.model.messages import JobSubmitted, SiteReported
from koala.model.nodes import NodeClass, NodeSize
from koala.model.request import Component, Request
from tests.core.test_shapes import shaped

GIB = 2**30


def refused(*components: Component, told: tuple[str, ...] = ("a", "b"), policy: str = "WF") -> Refusal:
    """What a job is told on clusters of 16 and 8 processors in nodes of 4, with 8 GiB each and no GPUs."""
    batch = BatchSettings(work_directory="~/koala")
    sites = {"a": 16, "b": 8}
    grid = Grid(
        sites=tuple(Site(name=name, processors=size, kind="slurm", batch=batch) for name, size in sites.items())
    )
    scheduler = Scheduler(grid)
    size = NodeSize(4, 8 * GIB)
    for name, processors in sites.items():
        nodes = (NodeClass(processors // 4, size, size),) if name in told else ()
        scheduler.handle(SiteReported(at=0.0, site=name, processors=processors, others=0, nodes=nodes))
    scheduler.handle(JobSubmitted(at=0.0, job=1, request=Request(components=components, policy=policy)))
    explained = scheduler.explain(1)
    assert explained is not None
    assert explained.refusal is not None
    return explained.refusal


@pytest.mark.parametrize("policy", ["WF", "CF"])
@pytest.mark.parametrize("told", [("a", "b"), ("a",), ("b",)])
@pytest.mark.parametrize(
    "components",
    [
        (shaped(1, 32),),
        (shaped(1, 32, gpus=1),),
        (shaped(9, 2, memory_bytes=GIB),),
        (Component(processors=1), shaped(1, 32)),
        (shaped(1, 2), shaped(1, 32, memory_bytes=GIB)),
        (shaped(1, 32, site="b"), Component(processors=1)),
    ],
)
def test_more_processors_than_any_site_has_never_fit_though_a_site_has_not_told_of_its_nodes(
    components: tuple[Component, ...], told: tuple[str, ...], policy: str
) -> None:
    assert refused(*components, told=told, policy=policy).permanent


@pytest.mark.parametrize(
    "components",
    [
        (Component(processors=1), shaped(1, 8)),
        (shaped(1, 2), shaped(1, 1, gpus=1)),
        (Component(processors=2), shaped(1, 1, memory_bytes=16 * GIB), shaped(1, 2)),
    ],
)
def test_one_part_that_no_node_holds_is_enough(components: tuple[Component, ...]) -> None:
    refusal = refused(*components)
    assert refusal.permanent
    assert refusal.component == 1
    assert all(short.cure.startswith("none:") for short in refusal.shortages)


def test_parts_that_fit_alone_and_never_together_are_told_so() -> None:
    refusal = refused(shaped(4, 4, site="a"), Component(processors=4, site="a"))
    assert refusal.permanent
    assert (
        refusal.cure
        == "ask for fewer or smaller tasks, since its components do not fit together on idle sites either"
    )


@pytest.mark.parametrize("needs", [{"gpus": 1}, {"memory_bytes": 16 * GIB}, {"constraint": "fast"}])
def test_what_a_site_may_have_that_has_not_told_of_its_nodes_is_not_said_to_be_nowhere(needs: dict[str, Any]) -> None:
    for told in ((), ("a",), ("b",)):
        assert not refused(shaped(1, 1, **needs), told=told).permanent
        assert not refused(Component(processors=1), shaped(1, 1, **needs), told=told).permanent
    assert refused(shaped(1, 16, **needs), told=("a",)).permanent, "b is too small for it in any case"
