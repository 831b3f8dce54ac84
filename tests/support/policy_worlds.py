"""The common part of the policies' tests: small grids, requests, and hypothesis strategies for both."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from koala.model.grid import Grid, Link, Links, Site, StoredFile
from koala.model.request import Component, Flexibility, InputFile, InputMode, Request
from koala.policies import Catalogue
from koala.policies.interface import Demand, View, compile_demand

BUILTIN = Catalogue.builtin()

# A policy as a user might write it.
FIRST_FIT = """
from koala.policies import Form, policy


@policy("FF", form=Form.COMPONENTS, summary="First fit: the first site that has room.")
def first_fit(idle, sizes, left, chosen):
    for component in range(len(sizes)):
        for site in range(len(left)):
            if left[site] >= sizes[component]:
                left[site] -= sizes[component]
                chosen[component] = site
                break
        else:
            return component
    return -1
"""


def view_of(*idle: int, limit: tuple[int, ...] | None = None) -> View:
    """Return sites C1, C2, ... with these idle processors; by default these are all they have."""
    sizes = idle if limit is None else limit
    sites = tuple(Site(name=f"C{number}", processors=size) for number, size in enumerate(sizes, 1))
    view = View.from_grid(Grid(sites=sites))
    view.idle = list(idle)
    return view


def components(*sizes: int) -> Request:
    """Return a non-fixed request."""
    return Request(components=tuple(Component(processors=size) for size in sizes))


def flexible(
    total: int,
    component_min: int = 1,
    components_max: int | None = None,
    splits: tuple[tuple[int, ...], ...] = (),
) -> Request:
    """Return a flexible request."""
    bounds = Flexibility(component_min=component_min, components_max=components_max, splits=splits)
    return Request(components=(Component(processors=total),), flexible=bounds)


def demand_for(request: Request, policy: str, view: View) -> Demand:
    """Return the request compiled under one of Koala's own policies."""
    return compile_demand(request, BUILTIN.find(policy), view.index)


idle_lists = st.lists(st.integers(0, 30), min_size=1, max_size=6)
size_lists = st.lists(st.integers(1, 20), min_size=1, max_size=6).map(lambda sizes: sorted(sizes, reverse=True))
policy_names = st.sampled_from(BUILTIN.names())


@st.composite
def requests(draw: st.DrawFn, sites: int, files: tuple[str, ...] = ()) -> Request:
    """Draw a request of any structure for a grid of sites C1, C2, ...."""
    read = st.lists(
        st.builds(InputFile, name=st.sampled_from(files), mode=st.sampled_from(InputMode)),
        max_size=2,
        unique_by=lambda file: file.name,
    ).map(tuple)
    reads = read if files else st.just(())
    if draw(st.booleans()):
        return _flexible(draw, draw(reads))
    names = [None, *(f"C{number}" for number in range(1, sites + 1))]
    one = st.builds(Component, processors=st.integers(1, 20), site=st.sampled_from(names), input_files=reads)
    return Request(components=tuple(draw(st.lists(one, min_size=1, max_size=5))))


def _flexible(draw: st.DrawFn, reads: tuple[InputFile, ...]) -> Request:
    total = draw(st.integers(1, 60))
    component = Component(processors=total, input_files=reads)
    if draw(st.booleans()):
        bounds = Flexibility(
            component_min=draw(st.integers(1, total)),
            components_max=draw(st.none() | st.integers(1, 5)),
        )
        return Request(components=(component,), flexible=bounds)
    cuts = draw(st.lists(st.sets(st.integers(1, max(1, total - 1)), max_size=3), min_size=1, max_size=3))
    splits = tuple(_split(total, sorted(cut - {total})) for cut in cuts)
    return Request(components=(component,), flexible=Flexibility(splits=splits))


def _split(total: int, cuts: list[int]) -> tuple[int, ...]:
    edges = [0, *cuts, total]
    return tuple(high - low for low, high in itertools.pairwise(edges))


@st.composite
def grids(draw: st.DrawFn, files: tuple[str, ...] = ()) -> Grid:
    """Draw a grid of sites C1, C2, ... with quotas, one kind of link and, for each file, some replicas (or none)."""
    count = draw(st.integers(1, 5))
    names = [f"C{number}" for number in range(1, count + 1)]
    sites = tuple(
        Site(
            name=name,
            processors=draw(st.integers(0, 40)),
            quota=draw(st.sampled_from([0.0, 0.25, 0.29, 0.5, 0.75, 1.0])),
        )
        for name in names
    )
    link = Link(
        bandwidth_mbit_s=draw(st.sampled_from([1.0, 10.0, 100.0])), latency_s=draw(st.sampled_from([0.0, 0.1]))
    )
    stored = tuple(
        StoredFile(
            name=file, size_bytes=draw(st.integers(0, 10**9)), replicas=tuple(draw(st.sets(st.sampled_from(names))))
        )
        for file in files
    )
    return Grid(sites=sites, links=Links(default=link), files=stored)
