"""The errors of policies and of the names in requests, with words from which their author can correct them.

A request that does not fit is no error but a ``Refusal``, made in ``koala.policies.refusals.refusal``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NAMES_SHOWN_MAX = 20


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean ...?" with similar names if there are any, then the known names, a long list cut short."""
    names = list(known)
    by_fold = {candidate.casefold(): candidate for candidate in names}
    near = [by_fold[fold] for fold in difflib.get_close_matches(name.casefold(), by_fold, n=3, cutoff=0.5)]
    question = f"did you mean {' or '.join(near)}? " if near else ""
    shown = ", ".join(names[:NAMES_SHOWN_MAX]) or "none"
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return f"{question}{'There' if near else 'there'} are: {shown}{more}"


class UnknownPolicyError(ValueError):
    """A name that no policy has.

    >>> from koala.policies import Catalogue, UnknownPolicyError
    >>> try:
    ...     Catalogue.builtin().find("FCN")
    ... except UnknownPolicyError as error:
    ...     print(error.for_user().partition("?")[0])
    there is no policy 'FCN'; did you mean FCM or FCF or NFCM
    """

    def __init__(self, name: str, known: Iterable[str], kind: str = "policy") -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"there is no {kind} {name!r}")

    def for_user(self) -> str:
        """Return the name, similar names, and all names."""
        return f"{self}; {suggest(self.name, self.known)}"


class PolicyParameterError(UnknownPolicyError):
    """A name of a policy whose parameters cannot be read, or do not belong to it."""

    def __init__(self, name: str, problem: str, cure: str) -> None:
        super().__init__(name, ())
        self.problem = problem
        self.cure = cure
        self.args = (f"the policy {name!r}: {problem}",)

    def for_user(self) -> str:
        """Return the name, what is wrong with it, and what to write."""
        return f"{self}; {self.cure}"


class UnknownSiteError(ValueError):
    """A component that names a site which the grid does not have.

    >>> from koala.policies import UnknownSiteError
    >>> print(UnknownSiteError("delf", 1, ["delft", "leiden"]).for_user())
    component 1 names the site 'delf', which the grid does not have; did you mean delft? There are: delft, leiden
    """

    def __init__(self, name: str, component: int, known: Iterable[str]) -> None:
        self.name = name
        self.component = component
        self.known = tuple(known)
        super().__init__(f"component {component} names the site {name!r}, which the grid does not have")

    def for_user(self) -> str:
        """Return the component, the name, similar names, and the known names."""
        return f"{self}; {suggest(self.name, self.known)}"


class UnknownHomeError(UnknownSiteError):
    """A job whose home the grid does not have."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(name, 0, known)
        self.args = (f"the home of the job is {name!r}, a site which the grid does not have",)


class MissingFileError(ValueError):
    """A file to be read has no replica at any site.

    >>> from koala.policies import MissingFileError
    >>> print(MissingFileError("mesh.dat").for_user())
    no site holds a replica of the file 'mesh.dat'; register one, or take the file out of the job
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no site holds a replica of the file {name!r}")

    def for_user(self) -> str:
        """Return the file, and what to do."""
        return f"{self}; register one, or take the file out of the job"


class PolicyFileError(ValueError):
    """A policy file, or a package with policies, that cannot be used: the place, the problem, and the cure.

    >>> from koala.policies import Catalogue, PolicyFileError
    >>> try:
    ...     Catalogue.builtin().add_from_source("x = 1", "empty.py")
    ... except PolicyFileError as error:
    ...     print(error)
    empty.py: it registers no policy
    """

    def __init__(self, origin: str, line: int | None, problem: str, cure: str) -> None:
        self.origin = origin
        self.line = line
        self.problem = problem
        self.cure = cure
        place = origin if line is None else f"{origin}, line {line}"
        super().__init__(f"{place}: {problem}")

    def for_user(self) -> str:
        """Return the file, the line, what is wrong, and what to do."""
        return f"{self}; {self.cure}"


class PolicyError(ValueError):
    """A policy or an order that is not Koala's gave a wrong answer, or raised an error.

    >>> from koala.policies import PolicyError
    >>> print(PolicyError("BF", "best_fit.py", "raised IndexError: list index out of range").for_user())
    the policy 'BF' (from best_fit.py) raised IndexError: list index out of range; repair it, or choose another policy
    """

    def __init__(self, name: str, origin: str, problem: str, kind: str = "policy") -> None:
        self.name = name
        self.origin = origin
        self.problem = problem
        self.kind = kind
        super().__init__(f"the {kind} {name!r} (from {origin}) {problem}")

    def for_user(self) -> str:
        """Return which policy or order, what it did, and what to do."""
        return f"{self}; repair it, or choose another {self.kind}"
