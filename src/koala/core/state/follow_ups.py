"""What follows from an event: work that a transition leaves behind, and that the same turn takes up."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeAlias


class Work(enum.IntEnum):
    """What is to be done, and with what. Kinds are taken up in this order."""

    CANCEL_ELEMENTS = 0  # an array that has ended
    JOIN_RUN = 1  # a running job with spawned tasks on their way; why they cannot begin any more, if they cannot
    NOTIFY_DEPENDENTS = 2  # what has become of a job; the last dependent that knows it
    UNFOLD = 3  # an array that more elements may be made of, or that may be over
    LEAVE_SITE = 4  # a site that is unusable or silent
    CLAIM = 5  # no subject: jobs are due to claim
    REVIEW_SITES = 6  # no subject: a site was opened or closed, or a node of one
    TRY_EVERYBODY = 7  # no subject: a site has less for us, so that plans may come to nothing


# What is done with a subject and its detail; where there is a limit, with so much of it left, and how much it used.
Action: TypeAlias = Callable[[Any, Any], object]
BoundedAction: TypeAlias = Callable[[Any, Any, int], int]
# Work whose subject is one job, by its number.
OF_JOBS = frozenset({Work.JOIN_RUN, Work.UNFOLD})


class FollowUps:
    """The work that is left in a turn. Within a kind the first subject comes first, and each subject comes once.

    A kind may have a limit: the turn leaves what exceeds it for the next, which is due at once.
    """

    def __init__(self, concerns: Callable[[Work, Any], None] = lambda *_: None) -> None:
        self._concerns = concerns  # receives the work that is taken up now
        self.left: dict[Work, dict[Any, Any]] = {}  # by kind its subjects, each with the detail; no kind without any
        self._actions: dict[Work, Action] = {}
        self._bounded: dict[Work, tuple[int, BoundedAction]] = {}

    def on(self, kind: Work, action: Action) -> None:
        """Each module of the core says once what it does with work of its own."""
        self._actions[kind] = action

    def on_bounded(self, kind: Work, limit: int, action: BoundedAction) -> None:
        """The same for work with a limit for each turn. The action drops the subject once it is done with it."""
        self._bounded[kind] = limit, action

    def add(self, kind: Work, subject: Any = None, detail: Any = None) -> None:
        """Deal with the subject in this turn. A subject that is there already keeps its place, and its detail where
        none is given."""
        subjects = self.left.setdefault(kind, {})
        subjects[subject] = detail or subjects.get(subject)

    def drop(self, kind: Work, subject: Any) -> None:
        """Leave the subject alone; without effect where it is not there."""
        subjects = self.left.get(kind, {})
        subjects.pop(subject, None)
        if not subjects:
            self.left.pop(kind, None)

    def of(self, kind: Work) -> dict[Any, Any]:
        """The subjects of one kind, with their details."""
        return self.left.get(kind, {})

    def take_up(self, first: Work = Work.CANCEL_ELEMENTS) -> None:
        """Do what there is of this kind and of those behind it: each kind to its end, then the first one again."""
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
