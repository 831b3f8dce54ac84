"""The policies by name: Koala's own, those of installed packages, and those in files that a user wrote.

A policy is a plain function in one of a few forms. What a user's function answers is checked on every call;
that happens in ``koala.policies.foreign``, and turning requests into calls in ``koala.policies.placing``.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from koala.model import Request
from koala.policies.close_to_files import close_to_files, closest_site
from koala.policies.cluster_minimization import cluster_minimization
from koala.policies.errors import PolicyFileError, UnknownPolicyError
from koala.policies.flexible_close_to_files import (
    fewest_parts,
    flexible_close_to_files,
    last_before,
    least_time_s,
    room_within,
)
from koala.policies.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.frozen_order import next_most_idle
from koala.policies.near_sites import combination_cost, near_sites
from koala.policies.network_cluster_minimization import network_cluster_minimization
from koala.policies.network_flexible_cluster_minimization import network_flexible_cluster_minimization
from koala.policies.policy_file import run_policy_file
from koala.policies.worst_fit import worst_fit

ENTRY_POINT_GROUP = "koala.policies"
ORIGIN_KOALA = "koala"
NAME_CHARACTERS_MAX = 64
# What a job can write as the name of a policy: the readers of jobs know the same pattern.
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"

_MARK = "__koala_policy__"

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., int])


class Form(enum.StrEnum):
    """What a policy is called with; the lists it fills are its last arguments.

    - COMPONENTS ``(idle, sizes, left, chosen)``: as ``worst_fit``;
    - FILES ``(idle, sizes, transfer_s, left, chosen)``: as ``close_to_files``;
    - FLEXIBLE ``(idle, total, component_min, components_max, parts)``: as ``flexible_cluster_minimization``;
    - NETWORK ``(idle, sizes, slowness, combined, left, chosen)``: as ``network_cluster_minimization``;
    - FLEXIBLE_FILES ``(idle, total, component_min, components_max, fixed_s, per_processor_s, parts)``: as
      ``flexible_close_to_files``;
    - FLEXIBLE_NETWORK ``(idle, total, component_min, components_max, slowness, parts)``: as
      ``network_flexible_cluster_minimization``.
    """

    COMPONENTS = "components"
    FILES = "files"
    FLEXIBLE = "flexible"
    NETWORK = "network"
    FLEXIBLE_FILES = "flexible-files"
    FLEXIBLE_NETWORK = "flexible-network"

    @property
    def divides(self) -> bool:
        """Whether a policy of this form divides totals; otherwise it places components of given sizes."""
        return self in (Form.FLEXIBLE, Form.FLEXIBLE_FILES, Form.FLEXIBLE_NETWORK)


PARAMETERS: dict[Form, tuple[str, ...]] = {
    Form.COMPONENTS: ("idle", "sizes", "left", "chosen"),
    Form.FILES: ("idle", "sizes", "transfer_s", "left", "chosen"),
    Form.FLEXIBLE: ("idle", "total", "component_min", "components_max", "parts"),
    Form.NETWORK: ("idle", "sizes", "slowness", "combined", "left", "chosen"),
    Form.FLEXIBLE_FILES: (
        "idle",
        "total",
        "component_min",
        "components_max",
        "fixed_s",
        "per_processor_s",
        "parts",
    ),
    Form.FLEXIBLE_NETWORK: ("idle", "total", "component_min", "components_max", "slowness", "parts"),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A named rule that says where the components of a job go.

    - ``origin``: "koala", the path of a user's file, or the name of an entry point;
    - ``checked``: the function is not ours, so every answer of it is verified;
    - ``components_policy``: some policies divide totals. Where there is nothing to divide, because the user
      fixed the component sizes or listed the allowed splits, those sizes are placed by this policy;
    - ``helpers``: functions that ``function`` calls, which a compiler must know too;
    - ``most_idle_takes_whole``: a lone component without files, or a flexible total, goes to the site with the
      most idle processors (lowest index) whenever that site can hold it, so that asking the function is needless.
    """

    name: str
    form: Form
    function: Callable[..., int]
    summary: str
    origin: str = ORIGIN_KOALA
    checked: bool = False
    components_policy: Policy | None = None
    helpers: tuple[Callable[..., Any], ...] = ()
    most_idle_takes_whole: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class _Mark:
    """What the decorator leaves on a function for the catalogue to collect."""

    name: str
    form: Form
    summary: str


def policy(name: str, form: Form | str = Form.COMPONENTS, summary: str = "") -> Callable[[AnyFunction], AnyFunction]:
    """Mark a function as a policy; the catalogue that reads the file takes it up under ``name``.

    ``summary`` is the line that ``koala policies`` shows, by default the first line of the docstring.
    """
    if not isinstance(name, str):
        raise TypeError('@policy stands without the name of the policy; write @policy("name") above the function')
    if len(name) > NAME_CHARACTERS_MAX or re.fullmatch(NAME_PATTERN, name) is None:
        raise ValueError(
            f"{name!r} is no name for a policy; write 1 to {NAME_CHARACTERS_MAX} letters, digits, dots, underscores "
            "and dashes, the first a letter or a digit"
        )
    try:
        known_form = Form(form)
    except ValueError:
        raise ValueError(f"{form!r} is no form of a policy; write one of {', '.join(Form)}") from None

    def mark(function: AnyFunction) -> AnyFunction:
        line = summary or (function.__doc__ or "").strip().partition("\n")[0]
        setattr(function, _MARK, _Mark(name, known_form, line))
        return function

    return mark


CM = Policy(
    name="CM",
    form=Form.COMPONENTS,
    function=cluster_minimization,
    summary="Cluster minimization: components together, on the fewest sites, most idle first.",
    most_idle_takes_whole=True,
)
WF = Policy(
    name="WF",
    form=Form.COMPONENTS,
    function=worst_fit,
    summary="Worst fit: each component on the site with the most idle processors left.",
    most_idle_takes_whole=True,
)
CF = Policy(
    name="CF",
    form=Form.FILES,
    function=close_to_files,
    summary="Close to files: each component where its input files arrive soonest.",
    helpers=(closest_site,),
    most_idle_takes_whole=True,
)
FCM = Policy(
    name="FCM",
    form=Form.FLEXIBLE,
    function=flexible_cluster_minimization,
    summary="Flexible cluster minimization: divides a total over the fewest sites; given sizes go by CM.",
    components_policy=CM,
    most_idle_takes_whole=True,
)

NCM = Policy(
    name="NCM",
    form=Form.NETWORK,
    function=network_cluster_minimization,
    summary="Network-aware CM: combines near sites where unequal links make that the faster way.",
    helpers=(next_most_idle, near_sites, combination_cost, cluster_minimization),
    most_idle_takes_whole=True,
)
NFCM = Policy(
    name="NFCM",
    form=Form.FLEXIBLE_NETWORK,
    function=network_flexible_cluster_minimization,
    summary="Network-aware FCM: divides a total over near sites; given sizes go by NCM.",
    components_policy=NCM,
    helpers=(next_most_idle, near_sites, combination_cost, flexible_cluster_minimization),
    most_idle_takes_whole=True,
)
FCF = Policy(
    name="FCF",
    form=Form.FLEXIBLE_FILES,
    function=flexible_close_to_files,
    summary="Flexible close to files: divides a total so that its input arrives soonest; given sizes go by CF.",
    components_policy=CF,
    helpers=(
        next_most_idle,
        room_within,
        fewest_parts,
        last_before,
        least_time_s,
        flexible_cluster_minimization,
    ),
    most_idle_takes_whole=True,
)

# The policies that given sizes go to where a user's policy only divides totals, by its form.
_COMPONENTS_POLICIES = {Form.FLEXIBLE: CM, Form.FLEXIBLE_FILES: CF, Form.FLEXIBLE_NETWORK: NCM}


def dividing(policy: Policy) -> Policy:
    """The policy that divides totals where this one does not: the one of ours that looks at the same things."""
    if policy.form.divides:
        return policy
    return next((ours for ours in (FCM, NFCM, FCF) if ours.components_policy is policy), FCM)


class Catalogue:
    """The policies that a process knows, by name; names are compared without regard to case."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, Policy] = {}

    @classmethod
    def builtin(cls) -> Catalogue:
        """A catalogue of Koala's own policies. Each call makes a new one, to which more can be added."""
        catalogue = cls()
        for ours in (WF, CM, FCM, CF, NCM, NFCM, FCF):
            catalogue.add(ours)
        return catalogue

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._by_name.values())

    def names(self) -> tuple[str, ...]:
        """All names, in the order in which the policies were added."""
        return tuple(known.name for known in self)

    def find(self, name: str) -> Policy:
        """The policy of that name, in any case. Raises UnknownPolicyError with the names that come near."""
        found = self._by_name.get(name.casefold())
        if found is None:
            raise UnknownPolicyError(name, self.names())
        return found

    def choose(self, request: Request, default: str) -> Policy:
        """The policy for a request: the one that it names, else the grid's, which is ``default``.

        Where the grid's does not divide, a total goes to the one that divides in its place: a job that leaves the
        choice to the grid is never kept waiting by it. What a request names is taken as it stands.
        """
        if request.policy is not None:
            return self.find(request.policy)
        grids = self.find(default)
        return dividing(grids) if request.is_total else grids

    def add(self, new: Policy) -> None:
        """Take up a policy. Raises PolicyFileError where the name is taken: nothing is ever replaced."""
        known = self._by_name.get(new.name.casefold())
        if known is not None:
            raise PolicyFileError(
                new.origin,
                _first_line(new.function),
                f"there is already a policy {known.name!r} (from {known.origin})",
                "give it another name",
            )
        self._by_name[new.name.casefold()] = new

    def add_from_source(self, text: str, filename: str) -> tuple[Policy, ...]:
        """Run the text of a user's Python file and take up the functions that ``@policy`` marks in it.

        All or none of them: after a PolicyFileError the catalogue is as it was.
        """
        namespace = run_policy_file(text, filename)
        marked = {id(value): value for value in namespace.values() if callable(value) and hasattr(value, _MARK)}
        if not marked:
            raise PolicyFileError(
                filename,
                None,
                "it registers no policy",
                "put @policy(name) above a function (from koala.policies import Form, policy)",
            )
        return self._add_all([_foreign(function, filename) for function in marked.values()])

    def load_entry_points(self) -> tuple[Policy, ...]:
        """Take up the policies of installed packages: entry points of the group "koala.policies".

        An entry point names a function that is marked with ``@policy``. All or none of them.
        """
        from importlib.metadata import entry_points

        found = []
        for entry_point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
            origin = f"entry point {entry_point.name}"
            try:
                function = entry_point.load()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                # Loading runs the package's own code, which may raise anything.
                raise PolicyFileError(
                    origin, None, f"{entry_point.value} cannot be loaded: {error}", "repair or remove its package"
                ) from error
            if not callable(function) or not hasattr(function, _MARK):
                raise PolicyFileError(
                    origin, None, f"{entry_point.value} is not marked as a policy", "put @policy(name) above it"
                )
            found.append(_foreign(function, origin))
        return self._add_all(found)

    def _add_all(self, found: list[Policy]) -> tuple[Policy, ...]:
        before = dict(self._by_name)
        try:
            for new in found:
                self.add(new)
        except PolicyFileError:
            self._by_name = before
            raise
        return tuple(found)


def _foreign(function: Callable[..., int], origin: str) -> Policy:
    """A policy made from a marked function of somebody else's, after a look at its parameters."""
    import inspect

    mark: _Mark = getattr(function, _MARK)
    parameters = PARAMETERS[mark.form]
    try:
        inspect.signature(function).bind(*parameters)
    except TypeError:
        raise PolicyFileError(
            origin,
            _first_line(function),
            f"policy {mark.name!r} cannot be called with {len(parameters)} arguments",
            f"a policy of the form {mark.form} is a function of ({', '.join(parameters)})",
        ) from None
    return Policy(
        name=mark.name,
        form=mark.form,
        function=function,
        summary=mark.summary,
        origin=origin,
        checked=True,
        components_policy=_COMPONENTS_POLICIES.get(mark.form),
    )


def _first_line(function: Callable[..., int]) -> int | None:
    code = getattr(function, "__code__", None)
    return None if code is None else code.co_firstlineno
