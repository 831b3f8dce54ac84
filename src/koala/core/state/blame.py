"""The evidence against a site: failures of applications there, by user and program.

An accusation counts once the very same application has run to its end elsewhere. The accuser of a site is a user with
a command, all scripts of a user being one: it accuses the site once, however often it fails there. The accuser of a
node is a user with one program, identified by its content (``koala.core.failures.program``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import TypeVar

from koala.core.encoded import encoded
from koala.model.request import JobId

T = TypeVar("T")

# At most this many accusations of one site are kept; the oldest of the user with the most goes first.
ACCUSATIONS_KEPT_MAX = 64
# Accusations of a site are forgotten after a day.
ACCUSATION_S = 86_400.0
# The weight of an accusation with a sign of the site, and of any other.
SIGNED_WEIGHT = 2
PLAIN_WEIGHT = 1
# A site loses its trust when its counting accusations have this weight, and at least this many accusers.
TRUST_LOST_WEIGHT = 4
ACCUSERS_MIN = 2
# At most this many accusations of nodes are kept for one site, by the same rule.
NODE_ACCUSATIONS_KEPT_MAX = 64
# At most this many accusations, the last ones, are named in the reason.
TOLD_MAX = 4


@encoded
class Accusation:
    """One user's program that failed at a site. ``witness`` identifies the very same application."""

    at: float
    job: JobId
    weight: int
    witness: str
    what: str
    proved: bool = False


@encoded
class NodeAccusation:
    """One user's program that failed on a node.

    ``program`` is its identity and ``name`` what people call it; ``witness`` identifies the very same application,
    ``what`` describes how it failed.
    """

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
        """Return True if it concerns this user's program on one of these nodes, or on any."""
        return (self.owner, self.program) == (owner, program) and (nodes is None or self.node in nodes)


@encoded
class SiteRecord:
    """The evidence against one site, by accuser, and why it last lost its trust; and the evidence against its nodes,
    in the order of its arrival."""

    accusations: dict[str, Accusation] = field(default_factory=dict)
    distrusted: str = ""
    nodes: list[NodeAccusation] = field(default_factory=list)

    def accuse(self, accuser: str, accusation: Accusation) -> None:
        """Note a failure. A proof stays valid: the same program fails here again."""
        known = self.accusations.pop(accuser, None)
        if known is not None and known.proved:
            accusation.proved = True
            accusation.weight = max(accusation.weight, known.weight)
        self.accusations[accuser] = accusation
        while len(self.accusations) > ACCUSATIONS_KEPT_MAX:
            del self.accusations[_oldest_of_most([(user_of(each), each) for each in self.accusations])]

    def prove(self, witness: str, job: JobId, now: float) -> bool:
        """Note that the same application has run to its end elsewhere; return True if that proves something against
        the site."""
        self.accusations = {who: each for who, each in self.accusations.items() if each.at > now - ACCUSATION_S}
        found = [each for each in self.accusations.values() if each.witness == witness or each.job == job]
        for each in found:
            each.proved = True
        return bool(found)

    def clear(self, job: JobId) -> None:
        """Drop the accusations of other jobs: a component of this job ran to its end here."""
        self.accusations = {who: each for who, each in self.accusations.items() if each.job == job}

    def accuse_node(self, accusation: NodeAccusation) -> None:
        """Note a failure on a node. A proof stays valid."""
        same = [each for each in self.nodes if each.is_of(accusation.owner, accusation.program, {accusation.node})]
        accusation.proved = any(each.proved for each in same)
        self.nodes = [*(each for each in self.nodes if each not in same), accusation]
        while len(self.nodes) > NODE_ACCUSATIONS_KEPT_MAX:
            self.nodes.remove(_oldest_of_most([(each.owner, each) for each in self.nodes]))

    def prove_nodes(self, witness: str, job: JobId) -> bool:
        """Note that the same application has run to its end, and not on the nodes it accuses; return True if that is
        new proof."""
        found = [each for each in self.nodes if not each.proved and (each.witness == witness or each.job == job)]
        for each in found:
            each.proved = True
        return bool(found)

    def clear_nodes(self, owner: str, program: str, nodes: Collection[str] | None = None) -> bool:
        """Clear these nodes for the user's program, which succeeded there or may run on all of them again.

        Returns True if the program accused one of them.
        """
        left = [each for each in self.nodes if not each.is_of(owner, program, nodes)]
        cleared, self.nodes = len(left) < len(self.nodes), left
        return cleared

    @property
    def proved(self) -> dict[str, int]:
        """The weight of the evidence against the site, by accuser."""
        return {accuser: each.weight for accuser, each in self.accusations.items() if each.proved}

    @property
    def distrusted_in_short(self) -> str:
        """Why the site lost its trust, without the jobs that a verdict names."""
        return self.distrusted.partition(":")[0]

    @property
    def verdict(self) -> str:
        """The reason in words: what failed here and succeeded elsewhere."""
        counting = [each.what for each in self.accusations.values() if each.proved]
        more = f" and {len(counting) - TOLD_MAX} more" if len(counting) > TOLD_MAX else ""
        return f"failures here of applications that did well elsewhere: {', '.join(counting[-TOLD_MAX:])}{more}"


def accuser_of(user: str, command: str) -> str:
    """Return the accuser of a site: a user with a command."""
    return f"{user}\n{command}"


def user_of(accuser: str) -> str:
    """Return the user of an accuser."""
    return accuser.partition("\n")[0]


def _oldest_of_most(owned: Sequence[tuple[str, T]]) -> T:
    """Return the first entry of the user with the most, so that no user's programs displace those of others."""
    most = Counter(user for user, _ in owned).most_common(1)[0][0]
    return next(each for user, each in owned if user == most)
