"""Follow-ups of an event: work that a transition leaves behind, and that the same turn takes up."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeAlias


class Work(enum.IntEnum):
    """The kinds of work, with their subjects and details. Kinds are taken up in this order."""

    CANCEL_ELEMENTS = 0  # an array that has ended
    JOIN_RUN = 1  # a running job with spawned tasks on their way; why they cannot begin any more, if so
    NOTIFY_DEPENDENTS = 2  # what has become of a job; its last notified dependent
    UNFOLD = 3  # an array that may make more elements, or may be over
    LEAVE_SITE = 4  # a site that is unusable or silent
    CLAIM = 5  # no subject: jobs are due to claim
    REVIEW_SITES = 6  # no subject: a site was opened or closed, or a node of one
    TRY_EVERYBODY = 7  # no subject: a site has less for us, so that plans may fail


# The action on a subject and its detail; with a limit, it also gets what is left of the limit and returns what it
# used.
Action: TypeAlias = Callable[[Any, Any], object]
BoundedAction: TypeAlias = Callable[[Any, Any, int], int]
# Work whose subject is one job, by its number.
OF_JOBS = frozenset({Work.JOIN_RUN, Work.UNFOLD})


class FollowUps:
    """The remaining work of a turn. Within a kind the first subject comes first, and each subject comes once.

    A kind may have a limit: work beyond it is left for the next turn, which is due at once.
    """

    def __init__(self, concerns: Callable[[Work, Any], None] = lambda *_: None) -> None:
        self._concerns = concerns  # receives the work that is taken up now
        self.left: dict[Work, dict[Any, Any]] = {}  # by kind its subjects, each with the detail; no empty kinds
        self._actions: dict[Work, Action] = {}
        self._bounded: dict[Work, tuple[int, BoundedAction]] = {}

    def on(self, kind: Work, action: Action) -> None:
        """Set the action for a kind of work; each module of the core does this once."""
        self._actions[kind] = action

    def on_bounded(self, kind: Work, limit: int, action: BoundedAction) -> None:
        """Do the same for work with a limit for each turn. The action drops the subject once it is done with it."""
        self._bounded[kind] = limit, action

    def add(self, kind: Work, subject: Any = None, detail: Any = None) -> None:
        """Deal with the subject in this turn. A known subject keeps its place, and its detail if none is given."""
        subjects = self.left.setdefault(kind, {})
        subjects[subject] = detail or subjects.get(subject)

    def drop(self, kind: Work, subject: Any) -> None:
        """Drop the subject; without effect if it is not there."""
        subjects = self.left.get(kind, {})
        subjects.pop(subject, None)
        if not subjects:
            self.left.pop(kind, None)

    def of(self, kind: Work) -> dict[Any, Any]:
        """Return the subjects of one kind, with their details."""
        return self.left.get(kind, {})

    def take_up(self, first: Work = Work.CANCEL_ELEMENTS) -> None:
        """Do all work of this kind and of those behind it: each kind to its end, then the first one again."""
        share = {kind: limit for kind, (limit, _) in self._bounded.items()}
        while kinds := [kind for kind in self.left if kind >= first and share.get(kind, 1) > 0]:
            kind = min(kinds)
            while (subjects := self.left.get(kind)) and share.get(kind, 1) > 0:
                subject, detail = next(iter(subjects.items()))
                self._concerns(kind, subject)
                if kind in self._bounded:
                    share[kind] -= self._bounded[kind][1](subject, detail, share[kind])
                else:
                    self.drop(kind, subject)
                    self._actions[kind](subject, detail)
