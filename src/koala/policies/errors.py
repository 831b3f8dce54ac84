"""What can be wrong with a policy, or with a request's names, told so that its author can put it right.

A request that does not fit is no error: that is a ``Refusal``, made in ``koala.policies.refusals.refusal``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NAMES_SHOWN_MAX = 20


def suggest(name: str, known: Iterable[str]) -> str:
    """ "did you mean ...?" where something comes near, then the names there are, a long list cut short."""
    names = list(known)
    by_fold = {candidate.casefold(): candidate for candidate in names}
    near = [by_fold[fold] for fold in difflib.get_close_matches(name.casefold(), by_fold, n=3, cutoff=0.5)]
    question = f"did you mean {' or '.join(near)}? " if near else ""
    shown = ", ".join(names[:NAMES_SHOWN_MAX]) or "none"
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return f"{question}{'There' if near else 'there'} are: {shown}{more}"


class UnknownPolicyError(ValueError):
    """A name that no policy has."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"there is no policy {name!r}")

    def for_user(self) -> str:
        """The name, what comes near, and all names."""
        return f"{self}; {suggest(self.name, self.known)}"


class PolicyParameterError(UnknownPolicyError):
    """A name of a policy whose parameters cannot be read, or are none of its own."""

    def __init__(self, name: str, problem: str, cure: str) -> None:
        super().__init__(name, ())
        self.problem = problem
        self.cure = cure
        self.args = (f"the policy {name!r}: {problem}",)

    def for_user(self) -> str:
        """The name, what is wrong with it, and what to write."""
        return f"{self}; {self.cure}"


class UnknownSiteError(ValueError):
    """A component that names a site which the grid does not have."""

    def __init__(self, name: str, component: int, known: Iterable[str]) -> None:
        self.name = name
        self.component = component
        self.known = tuple(known)
        super().__init__(f"component {component} names the site {name!r}, which the grid does not have")

    def for_user(self) -> str:
        """The component, the name, what comes near, and the names there are."""
        return f"{self}; {suggest(self.name, self.known)}"


class UnknownHomeError(UnknownSiteError):
    """A job whose home the grid does not have."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(name, 0, known)
        self.args = (f"the home of the job is {name!r}, a site which the grid does not have",)


class MissingFileError(ValueError):
    """A file that has to be read and of which no site holds a replica."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no site holds a replica of the file {name!r}")

    def for_user(self) -> str:
        """The file, and what to do."""
        return f"{self}; register one, or take the file out of the job"


class PolicyFileError(ValueError):
    """A policy of somebody else's that could not be taken up; ``origin`` is its file or entry point."""

    def __init__(self, origin: str, line: int | None, problem: str, cure: str) -> None:
        self.origin = origin
        self.line = line
        self.problem = problem
        self.cure = cure
        place = origin if line is None else f"{origin}, line {line}"
        super().__init__(f"{place}: {problem}")

    def for_user(self) -> str:
        """File, line, what is wrong, what to do."""
        return f"{self}; {self.cure}"


class PolicyError(ValueError):
    """A policy of somebody else's that gave a wrong answer, or none."""

    def __init__(self, name: str, origin: str, problem: str) -> None:
        self.name = name
        self.origin = origin
        self.problem = problem
        super().__init__(f"the policy {name!r} (from {origin}) {problem}")

    def for_user(self) -> str:
        """Which policy, what it did, and what to do."""
        return f"{self}; repair it, or choose another policy"
