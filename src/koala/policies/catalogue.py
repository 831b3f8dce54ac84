"""The policies by name: Koala's own, those of installed packages, and those in users' files.

A policy is a plain function in one of a few forms. ``koala.policies.external`` checks every answer of a user's
function; ``koala.policies.interface`` turns requests into calls.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from koala.model.grid import PolicyFile
from koala.model.request import Request
from koala.policies.builtin import CF, CM, FCF, FCM, NCM, NFCM, OWN_POLICIES, WASE, WF
from koala.policies.errors import PolicyFileError, UnknownPolicyError
from koala.policies.forms import PARAMETERS, Form, Policy
from koala.policies.orders.builtin import OWN_ORDERS
from koala.policies.orders.order import ORDER_MARK, ORDER_PARAMETERS, AnyOrder, JobOrder, OrderMark
from koala.policies.parameters import read_name, with_parameters
from koala.policies.policy_file import MODULE_NAME, run_policy_file

__all__ = [
    "CF",
    "CM",
    "ENTRY_POINT_GROUP",
    "FCF",
    "FCM",
    "NAME_CHARACTERS_MAX",
    "NAME_PATTERN",
    "NCM",
    "NFCM",
    "PARAMETERS",
    "WASE",
    "WF",
    "Catalogue",
    "Form",
    "Policy",
    "dividing",
    "marked_functions",
    "order",
    "policy",
]

ENTRY_POINT_GROUP = "koala.policies"
NAME_CHARACTERS_MAX = 64
# The names that a job can write for a policy, before any parameters: the readers of jobs have the same pattern.
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"

# At most this many names with parameters are remembered; jobs may write any number of them.
PARAMETRIZED_REMEMBERED = 1_024

_MARK = "__koala_policy__"

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., int])


@dataclasses.dataclass(frozen=True, slots=True)
class _Mark:
    """The mark of the decorator on a function, for the catalogue to collect."""

    name: str
    form: Form
    summary: str


# The functions that modules of this process mark, by name without case. A name that is marked again means the newer
# function, as in a notebook whose cell runs twice. Policy files are no modules of the process.
_MARKED: dict[str, Callable[..., Any]] = {}


def marked_functions() -> Mapping[str, Callable[..., Any]]:
    """Return the functions that imported modules mark as policies or orders, by name without case."""
    return MappingProxyType(_MARKED)


def policy(name: str, form: Form | str = Form.COMPONENTS, summary: str = "") -> Callable[[AnyFunction], AnyFunction]:
    """Mark a function as a placement policy of that name.

    ``simulate`` knows the policy once its module is imported. Everything else reads its file, which the grid file,
    the command line or the study names. ``form`` says what the function is called with. ``summary`` is the line that
    ``koala policies`` shows, by default the first line of the docstring.

    >>> from koala.policies import policy
    >>> from koala.simulator import Workload, clusters_in_short, simulate
    >>> @policy("LAST")
    ... def last_fit(idle, sizes, left, chosen):
    ...     "Each component on the last site that can take it."
    ...     for component, size in enumerate(sizes):
    ...         fitting = [site for site in range(len(idle)) if left[site] >= size]
    ...         if not fitting:
    ...             return component
    ...         chosen[component] = fitting[-1]
    ...         left[fitting[-1]] -= size
    ...     return -1
    >>> one_job = Workload.from_arrays([0.0], [4], [60.0])
    >>> [row.sites for row in simulate(clusters_in_short("3x8"), one_job, policy="LAST").rows()]
    ['c3']
    """
    _check_name(name, "policy")
    try:
        known_form = Form(form)
    except ValueError:
        raise ValueError(f"{form!r} is no form of a policy; write one of {', '.join(Form)}") from None

    def mark(function: AnyFunction) -> AnyFunction:
        setattr(function, _MARK, _Mark(name, known_form, summary or _first_words(function)))
        if getattr(function, "__module__", None) != MODULE_NAME:
            _MARKED[name.casefold()] = function
        return function

    return mark


def order(name: str, summary: str = "") -> Callable[[AnyOrder], AnyOrder]:
    """Mark a function as an order of the queue of that name, for ``order`` in a grid file.

    It is called with the waiting jobs of one priority, first come first (``WaitingJob``), with what each user has
    (``UserJobs``), and with the time, and returns the same jobs in the order in which they are to be tried.

    >>> from koala.policies import Catalogue, order
    >>> @order("widest")
    ... def widest_first(waiting, users, now):
    ...     "The widest job first."
    ...     return sorted(waiting, key=lambda job: -job.processors)
    >>> known = Catalogue.builtin()
    >>> known.add_function(widest_first).summary
    'The widest job first.'
    """
    _check_name(name, "order")

    def mark(function: AnyOrder) -> AnyOrder:
        setattr(function, ORDER_MARK, OrderMark(name, summary or _first_words(function)))
        if getattr(function, "__module__", None) != MODULE_NAME:
            _MARKED[_order_key(name)] = function
        return function

    return mark


def _check_name(name: object, kind: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f'@{kind} stands without the name of the {kind}; write @{kind}("name") above the function')
    if len(name) > NAME_CHARACTERS_MAX or re.fullmatch(NAME_PATTERN, name) is None:
        raise ValueError(
            f"{name!r} is no name for a{'n' if kind == 'order' else ''} {kind}; write 1 to {NAME_CHARACTERS_MAX} "
            "letters, digits, dots, underscores and dashes, the first a letter or a digit"
        )


def _first_words(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]


def _order_key(name: str) -> str:
    """Return the key of an order among the marked functions: a policy may have the same name."""
    return f"order {name.casefold()}"


# The policies that place given sizes when a user's policy only divides totals, by its form.
_COMPONENTS_POLICIES = {
    Form.FLEXIBLE: CM,
    Form.FLEXIBLE_FILES: CF,
    Form.FLEXIBLE_NETWORK: NCM,
    Form.LINKS: CM,
    Form.TASKS: CM,
}


def dividing(policy: Policy) -> Policy:
    """Return the policy that divides totals in place of this one: Koala's own with the same inputs."""
    if policy.form.divides:
        return policy
    return next((ours for ours in (FCM, NFCM, FCF) if ours.components_policy is policy), FCM)


class Catalogue:
    """The policies by name; names are compared without regard to case.

    Behind some names parameters may stand, in parentheses: ``B3(chunk=0.85)``.

    >>> from koala.policies import Catalogue
    >>> known = Catalogue.builtin()
    >>> known.names()[:4]
    ('WF', 'CM', 'FCM', 'CF')
    >>> known.find("wf").summary
    'Worst fit: each component on the site with the most idle processors left.'
    """

    __slots__ = ("_by_name", "_functions", "_orders", "_parametrized")

    def __init__(self, functions: Mapping[str, Callable[..., Any]] | None = None) -> None:
        """Make an empty catalogue. ``functions``, by name without case, are added when their names are looked up."""
        self._by_name: dict[str, Policy] = {}
        self._orders: dict[str, JobOrder] = {}
        self._parametrized: dict[str, Policy] = {}
        self._functions = functions or {}

    @classmethod
    def builtin(cls, functions: Mapping[str, Callable[..., Any]] | None = None) -> Catalogue:
        """Return a new catalogue of Koala's own policies, to which more can be added."""
        catalogue = cls(functions)
        for ours in OWN_POLICIES:
            catalogue.add(ours)
        for order_of_ours in OWN_ORDERS:
            catalogue.add(order_of_ours)
        return catalogue

    @classmethod
    def of(cls, files: Iterable[PolicyFile], functions: Mapping[str, Callable[..., Any]] | None = None) -> Catalogue:
        """Return Koala's own policies, those of installed packages, and those in the files, whose text
        is already read."""
        catalogue = cls.builtin(functions)
        catalogue.load_entry_points()
        for file in files:
            if file.text is None:
                raise PolicyFileError(
                    file.path, None, "it was not read", "read it with koala.simulator.read_grid_file"
                )
            catalogue.add_from_source(file.text, file.path)
        return catalogue

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._by_name.values())

    def names(self) -> tuple[str, ...]:
        """Return all names, in the order in which the policies were added."""
        return tuple(known.name for known in self)

    def find(self, name: str) -> Policy:
        """Return the policy of that name, in any case, with the parameters behind it.

        Raises UnknownPolicyError with similar names, or with the error in the parameters.
        """
        found = self._by_name.get(name.casefold()) or self._parametrized.get(name)
        if found is not None:
            return found
        written = read_name(name)
        bare = self._by_name.get(written.bare.casefold())
        if bare is None:
            function = self._functions.get(written.bare.casefold())
            if function is None:
                raise UnknownPolicyError(written.bare, self.names())
            made = self.add_function(function)
            assert isinstance(made, Policy)
            bare = made
        found = with_parameters(bare, name, written)
        if len(self._parametrized) >= PARAMETRIZED_REMEMBERED:
            self._parametrized.clear()
        self._parametrized[name] = found
        return found

    def orders(self) -> tuple[JobOrder, ...]:
        """Return the orders of a queue, in the order in which they were added."""
        return tuple(self._orders.values())

    def find_order(self, name: str) -> JobOrder:
        """Return the order of that name, in any case. Raises UnknownPolicyError with similar names."""
        found = self._orders.get(name.casefold())
        if found is not None:
            return found
        function = self._functions.get(_order_key(name))
        if function is None:
            raise UnknownPolicyError(name, [known.name for known in self.orders()], kind="order")
        made = self.add_function(function)
        assert isinstance(made, JobOrder)
        return made

    def choose(self, request: Request, default: str) -> Policy:
        """Return the policy for a request: the one it names, or else the grid's, ``default``.

        A job of tasks uses WASE if the grid's policy does not map tasks. If the grid's policy does not divide, a
        total uses the policy that divides in its place: a job that leaves the choice to the grid never has to wait
        because of it. A policy that the request names is used as it is.
        """
        if request.policy is not None:
            return self.find(request.policy)
        grids = self.find(default)
        if request.tasks is not None and grids.form is not Form.TASKS:
            return WASE
        return dividing(grids) if request.is_total else grids

    def add(self, new: Policy | JobOrder) -> None:
        """Add a policy or an order. Raises PolicyFileError if the name is taken: nothing is ever replaced."""
        fold = new.name.casefold()
        known = self._orders.get(fold) if isinstance(new, JobOrder) else self._by_name.get(fold)
        if known is not None:
            kind = "an order" if isinstance(new, JobOrder) else "a policy"
            raise PolicyFileError(
                new.origin,
                _first_line(new.function),
                f"there is already {kind} {known.name!r} (from {known.origin})",
                "give it another name",
            )
        if isinstance(new, JobOrder):
            self._orders[fold] = new
        else:
            self._by_name[fold] = new

    def add_from_source(self, text: str, filename: str) -> tuple[Policy, ...]:
        """Run the text of a user's Python file and add the functions that ``@policy`` and ``@order`` mark in it.

        Adds all or none of them: after a PolicyFileError the catalogue is unchanged. Returns the policies among them.
        """
        namespace = run_policy_file(text, filename)
        marked = {id(value): value for value in namespace.values() if _is_marked(value)}
        if not marked:
            raise PolicyFileError(
                filename,
                None,
                "it registers no policy",
                "put @policy(name) above a function (from koala.policies import Form, policy)",
            )
        return self._add_all([_foreign(function, filename) for function in marked.values()])

    def add_function(self, function: Callable[..., Any]) -> Policy | JobOrder:
        """Add a function that ``@policy`` or ``@order`` marks, unless it is here already."""
        name = getattr(function, "__name__", "it")
        if not _is_marked(function):
            raise PolicyFileError(name, None, "it is not marked as a policy", "put @policy(name) above it")
        new = _foreign(function, str(getattr(function, "__module__", name)))
        names: Mapping[str, Policy | JobOrder] = self._orders if isinstance(new, JobOrder) else self._by_name
        known = names.get(new.name.casefold())
        if known is not None and known.function is function:
            return known
        self.add(new)
        return new

    def load_entry_points(self) -> tuple[Policy, ...]:
        """Add the policies and orders of installed packages: entry points of the group "koala.policies".

        An entry point names a function that is marked with ``@policy`` or ``@order``. Adds all or none of them.
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
            if not _is_marked(function):
                raise PolicyFileError(
                    origin, None, f"{entry_point.value} is not marked as a policy", "put @policy(name) above it"
                )
            found.append(_foreign(function, origin))
        return self._add_all(found)

    def _add_all(self, found: list[Policy | JobOrder]) -> tuple[Policy, ...]:
        before = dict(self._by_name), dict(self._orders)
        try:
            for new in found:
                self.add(new)
        except PolicyFileError:
            self._by_name, self._orders = before
            raise
        return tuple(new for new in found if isinstance(new, Policy))


def _is_marked(value: object) -> bool:
    return callable(value) and (hasattr(value, _MARK) or hasattr(value, ORDER_MARK))


def _foreign(function: Callable[..., Any], origin: str) -> Policy | JobOrder:
    """Return the policy or order of a marked foreign function after a check of its parameters."""
    if hasattr(function, ORDER_MARK):
        order_mark: OrderMark = getattr(function, ORDER_MARK)
        _check_parameters(function, origin, f"order {order_mark.name!r}", "an order", ORDER_PARAMETERS)
        return JobOrder(
            name=order_mark.name, function=function, summary=order_mark.summary, origin=origin, checked=True
        )
    mark: _Mark = getattr(function, _MARK)
    _check_parameters(
        function, origin, f"policy {mark.name!r}", f"a policy of the form {mark.form}", PARAMETERS[mark.form]
    )
    return Policy(
        name=mark.name,
        form=mark.form,
        function=function,
        summary=mark.summary,
        origin=origin,
        checked=True,
        components_policy=_COMPONENTS_POLICIES.get(mark.form),
    )


def _check_parameters(
    function: Callable[..., Any], origin: str, what: str, a_right_one: str, parameters: tuple[str, ...]
) -> None:
    import inspect

    try:
        inspect.signature(function).bind(*parameters)
    except TypeError:
        raise PolicyFileError(
            origin,
            _first_line(function),
            f"{what} cannot be called with {len(parameters)} arguments",
            f"{a_right_one} is a function of ({', '.join(parameters)})",
        ) from None


def _first_line(function: Callable[..., Any]) -> int | None:
    code = getattr(function, "__code__", None)
    return None if code is None else code.co_firstlineno
