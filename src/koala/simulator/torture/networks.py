"""Networks and communicating jobs for storms, drawn from a stream of their own.

Only policies are drawn that place a job on an idle grid whatever others have done before.
"""

from __future__ import annotations

import random

import msgspec

from koala.model.grid import LinkGroup, Network
from koala.model.request import Communication, Pattern, Request, SiteName

# A module that looks at a job's own bandwidth refuses some for ever; whether it does is seen when the job is drawn.
_ANY_PATTERN = ("Initial", "Migration-Only", "B1", "B1(lslt=0.5)", "B2", "B3", "B4")
_ALL_TO_ALL = ("A1", "A1(order=most-free)")


def draw_network(rng: random.Random, names: list[SiteName]) -> Network | None:
    """A network with narrow links or without limits, or none at all."""
    if rng.random() < 0.4:
        return None
    groups: tuple[LinkGroup, ...] = ()
    if len(names) > 2 and rng.random() < 0.3:
        members = tuple(rng.sample(names, 2))
        groups = (LinkGroup(name="group", members=members, uplink_mbit_s=rng.choice((100.0, 400.0))),)
    return Network(uplink_mbit_s=rng.choice((100.0, 400.0, None)), groups=groups)


def draw_communication(
    rng: random.Random, request: Request, network: Network | None, names: list[SiteName]
) -> Request:
    """The request as it is, or as one that communicates, has a home, or goes by what is on the links."""
    if rng.random() < 0.5:
        return request
    pattern = rng.choice(list(Pattern))
    policy = request.policy
    if request.is_total and rng.random() < 0.7:
        policy = rng.choice(_ANY_PATTERN)
        if network is not None and not network.groups and pattern is Pattern.ALL_TO_ALL:
            policy = rng.choice((*_ANY_PATTERN, *_ALL_TO_ALL))
    return msgspec.structs.replace(
        request,
        policy=policy,
        home=rng.choice((None, *names)),
        communication=Communication(
            pattern=pattern, bisection_mbit_s=rng.choice((20.0, 100.0, 300.0)), share=rng.choice((0.3, 0.9))
        ),
    )
