"""What is held against a site: failures of applications there, by who ran what.

An accusation counts once the very same application has run to its end elsewhere. Whoever accuses a site is a user
with a command, all scripts of a user being one: however often that fails at a site, it accuses the site once. Whoever
accuses a node is a user with one program, known by its content (``koala.core.failures.program``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import TypeVar

from koala.core.encoded import encoded
from koala.model.request import JobId

T = TypeVar("T")

# Accusations of one site that are kept; of the user who has most of them the oldest goes first.
ACCUSATIONS_KEPT_MAX = 64
# What is held against a site is forgotten after a day.
ACCUSATION_S = 86_400.0
# An accusation with a sign of the site weighs so much, any other one half of it.
SIGNED_WEIGHT = 2
PLAIN_WEIGHT = 1
# A site loses its trust when the accusations that count weigh so much, of so many accusers at least.
TRUST_LOST_WEIGHT = 4
ACCUSERS_MIN = 2
# Accusations of nodes that are kept of one site, likewise.
NODE_ACCUSATIONS_KEPT_MAX = 64
# So many accusations, the last ones, are told as the reason.
TOLD_MAX = 4


@encoded
class Accusation:
    """One user's program that failed at a site. ``witness`` tells the very same application again."""

    at: float
    job: JobId
    weight: int
    witness: str
    what: str
    proved: bool = False


@encoded
class NodeAccusation:
    """One user's program that failed on a node. ``program`` is its identity and ``name`` what people call it;
    ``witness`` tells the very same application again, ``what`` how it failed."""

    node: str
    owner: str
    program: str
    at: float
    job: JobId
    witness: str
    name: str = ""
    what: str = ""
    proved: bool = False

    def is_of(self, owner: str, program: str, nodes: Collection[str] | None) -> bool:
        """Whether it is about this user's program on one of these nodes, or on any."""
        return (self.owner, self.program) == (owner, program) and (nodes is None or self.node in nodes)


@encoded
class SiteRecord:
    """What is held against one site, by accuser, and why it lost its trust the last time, if it did; and what is held
    against nodes of it, in the order in which that came up."""

    accusations: dict[str, Accusation] = field(default_factory=dict)
    distrusted: str = ""
    nodes: list[NodeAccusation] = field(default_factory=list)

    def accuse(self, accuser: str, accusation: Accusation) -> None:
        """Note a failure. What was proved before stays so: the same program fails here again."""
        known = self.accusations.pop(accuser, None)
        if known is not None and known.proved:
            accusation.proved = True
            accusation.weight = max(accusation.weight, known.weight)
        self.accusations[accuser] = accusation
        while len(self.accusations) > ACCUSATIONS_KEPT_MAX:
            del self.accusations[_oldest_of_most([(user_of(each), each) for each in self.accusations])]

    def prove(self, witness: str, job: JobId, now: float) -> bool:
        """The same application has run to its end elsewhere; whether that proves something against the site."""
        self.accusations = {who: each for who, each in self.accusations.items() if each.at > now - ACCUSATION_S}
        found = [each for each in self.accusations.values() if each.witness == witness or each.job == job]
        for each in found:
            each.proved = True
        return bool(found)

    def clear(self, job: JobId) -> None:
        """A component of the job ran to its end here: nothing is held against the site, but by the job itself."""
        self.accusations = {who: each for who, each in self.accusations.items() if each.job == job}

    def accuse_node(self, accusation: NodeAccusation) -> None:
        """Note a failure on a node. What was proved before stays so."""
        same = [each for each in self.nodes if each.is_of(accusation.owner, accusation.program, {accusation.node})]
        accusation.proved = any(each.proved for each in same)
        self.nodes = [*(each for each in self.nodes if each not in same), accusation]
        while len(self.nodes) > NODE_ACCUSATIONS_KEPT_MAX:
            self.nodes.remove(_oldest_of_most([(each.owner, each) for each in self.nodes]))

    def prove_nodes(self, witness: str, job: JobId) -> bool:
        """The same application has run to its end, and not on the nodes that are accused of it; True if that proves
        something new."""
        found = [each for each in self.nodes if not each.proved and (each.witness == witness or each.job == job)]
        for each in found:
            each.proved = True
        return bool(found)

    def clear_nodes(self, owner: str, program: str, nodes: Collection[str] | None = None) -> bool:
        """The program of this user did well on these nodes, or may run on all of them again; True if one was accused
        of it."""
        left = [each for each in self.nodes if not each.is_of(owner, program, nodes)]
        cleared, self.nodes = len(left) < len(self.nodes), left
        return cleared

    @property
    def proved(self) -> dict[str, int]:
        """What weighs against the site, by accuser."""
        return {accuser: each.weight for accuser, each in self.accusations.items() if each.proved}

    @property
    def distrusted_in_short(self) -> str:
        """Why it lost its trust, without the jobs that a verdict names."""
        return self.distrusted.partition(":")[0]

    @property
    def verdict(self) -> str:
        """Why, in words: what failed here and did well elsewhere."""
        counting = [each.what for each in self.accusations.values() if each.proved]
        more = f" and {len(counting) - TOLD_MAX} more" if len(counting) > TOLD_MAX else ""
        return f"failures here of applications that did well elsewhere: {', '.join(counting[-TOLD_MAX:])}{more}"


def accuser_of(user: str, command: str) -> str:
    """Whoever accuses a site: a user with a command."""
    return f"{user}\n{command}"


def user_of(accuser: str) -> str:
    """Whose program accuses a site."""
    return accuser.partition("\n")[0]


def _oldest_of_most(owned: Sequence[tuple[str, T]]) -> T:
    """The first of the user who has most, so that nobody's programs make those of others forgotten."""
    most = Counter(user for user, _ in owned).most_common(1)[0][0]
    return next(each for user, each in owned if user == most)
