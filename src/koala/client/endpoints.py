"""A method of both clients, written once: ``Endpoint`` for one call and ``Listing`` for a list that comes in pages.

Read from a class, a method is a plain function with the signature and the words of what it calls, so that ``help``
and ``inspect`` tell what there is.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import GenericAlias
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, overload

from koala.client.calls import Call
from koala.client.exchange import Exchange, Steps
from koala.client.validation import checked
from koala.model.api import PAGE_ITEMS_MAX

Value = TypeVar("Value")
Item = TypeVar("Item")
Whole = TypeVar("Whole")
P = ParamSpec("P")


class Blocking:
    """A client whose methods return what they are asked for."""

    is_async: ClassVar[bool] = False


class Awaited:
    """A client whose methods are awaited."""

    is_async: ClassVar[bool] = True


def _generic(kind: Any, value: Any) -> Any:
    """The type ``kind[value]``."""
    return GenericAlias(kind, (value,))


def _itself(value: Any) -> Any:
    return value


class _Method:
    """What is known of a method before it is bound: its name, its words, and what its calls give."""

    name = "method"

    def __init__(self, told_by: Callable[..., Any], gives: Callable[[Any], Any]) -> None:
        self._told_by = told_by
        self._gives = gives

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name
        self._owner = owner.__name__

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        hints = typing.get_type_hints(self._told_by)
        given = [
            parameter.replace(annotation=hints.get(name, parameter.annotation))
            for name, parameter in inspect.signature(self._told_by).parameters.items()
            if name != "self"
        ]
        return inspect.Signature(given, return_annotation=self._gives(hints["return"]))

    def _named(self, method: Callable[..., Any], kind: type[Any], given: Any, *, bound: bool) -> Any:
        """The method with its name, words and signature. ``given`` turns what a call gives into what this kind of
        client gives."""
        signature = self._signature
        own = [] if bound else [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
        gives = given(signature.return_annotation)
        parameters = list(signature.parameters.values())
        method.__name__ = self.name
        method.__qualname__ = f"{kind.__name__}.{self.name}"
        method.__doc__ = self._told_by.__doc__
        method.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": gives}
        shown = signature.replace(parameters=[*own, *parameters], return_annotation=gives)
        setattr(method, "__signature__", shown)  # noqa: B010 - inspect looks for it, and the type does not know it
        return method


class Endpoint(_Method, Generic[P, Value]):
    """A method of both clients: on ``Client`` it returns the value, on ``AsyncClient`` it is awaited."""

    def __init__(self, steps: Callable[Concatenate[Exchange, P], Steps[Value]], told_by: Callable[..., Any]) -> None:
        super().__init__(told_by, lambda hint: typing.get_args(hint)[-1])
        self._steps = steps

    @overload
    def __get__(self, client: Blocking, kind: type[Blocking]) -> Callable[P, Value]: ...
    @overload
    def __get__(self, client: Awaited, kind: type[Awaited]) -> Callable[P, Awaitable[Value]]: ...
    @overload
    def __get__(self, client: None, kind: type[Blocking | Awaited]) -> Callable[Concatenate[Any, P], Any]: ...
    def __get__(self, client: Any, kind: type[Any]) -> Any:
        given = functools.partial(_generic, Awaitable) if kind.is_async else _itself
        if client is None:

            def function(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
                return self._take(steps(self.exchange, *args, **kwargs))

            steps = self._steps
            return self._named(function, kind, given, bound=False)

        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client._take(self._steps(client.exchange, *args, **kwargs))

        return self._named(method, kind, given, bound=True)


def endpoint(describe: Callable[P, Call[Value]]) -> Endpoint[P, Value]:
    """The method that makes one call."""

    def steps(exchange: Exchange, /, *args: P.args, **kwargs: P.kwargs) -> Steps[Value]:
        return exchange.perform(checked(describe, *args, **kwargs))

    return Endpoint(steps, describe)


class Listing(_Method, Generic[P, Item]):
    """A method of both clients that gives every item of a long list, asking for page after page."""

    def __init__(
        self, page: Callable[P, Call[Whole]], cursor: str, next_of: Callable[[Whole], tuple[list[Item], Any]]
    ) -> None:
        item = typing.get_type_hints(next_of)["return"]
        super().__init__(page, lambda _: typing.get_args(typing.get_args(item)[0])[0])
        self._page = page
        self._cursor = cursor
        self._next_of = next_of

    @overload
    def __get__(self, client: Blocking, kind: type[Blocking]) -> Callable[P, Iterator[Item]]: ...
    @overload
    def __get__(self, client: Awaited, kind: type[Awaited]) -> Callable[P, AsyncIterator[Item]]: ...
    @overload
    def __get__(self, client: None, kind: type[Blocking | Awaited]) -> Callable[Concatenate[Any, P], Any]: ...
    def __get__(self, client: Any, kind: type[Any]) -> Any:
        given = functools.partial(_generic, AsyncIterator if kind.is_async else Iterator)
        if client is None:

            def function(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
                return listed(self, *args, **kwargs)

            listed = self._listed
            return self._named(function, kind, given, bound=False)

        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return self._listed(client, *args, **kwargs)

        return self._named(method, kind, given, bound=True)

    def _listed(self, client: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        kwargs.setdefault("limit", PAGE_ITEMS_MAX)
        described = functools.partial(checked, self._page, *args, **kwargs)
        return client._list(client.exchange, described, self._cursor, self._next_of)
