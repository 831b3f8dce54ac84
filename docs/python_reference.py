"""The reference of the Python library, from the docstrings of its public names.

Public is what ``__all__`` of a module in ``MODULES`` or ``FURTHER`` lists. Names in ``MODULES`` have examples in
their docstrings, which run as tests; those in ``FURTHER`` are listed with the first sentence of theirs.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, ForwardRef

import msgspec

MODULES = ("koala.simulator", "koala.policies", "koala.study", "koala")
FURTHER = (
    "koala.study.replay",
    "koala.study.live",
    "koala.lab",
    "koala.mapping",
    "koala.descriptions",
    "koala.cli.verbs",
)
# Made by Koala alone: how is of no interest to others.
NOT_CONSTRUCTED = {"Result", "Study"}
# Classes whose methods are for others than their users: those of an experiment, and those that Client has as well.
WITHOUT_MEMBERS = {"Study", "AsyncClient"}
LINE_CHARACTERS_MAX = 96
_MODULE_PREFIX = re.compile(r"\b(?:[a-z_0-9]+\.)+(?=[A-Za-z])")
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


def reference() -> str:
    """All modules, one after the other."""
    return "\n\n".join([*map(_module, MODULES), *map(_listed, FURTHER)])


def public_names(module: str) -> list[str]:
    """The public names of a module, the errors last."""
    found = importlib.import_module(module)
    return sorted(
        (name for name in found.__all__ if not name.startswith("__")),
        key=lambda name: (_is_error(getattr(found, name)), name.casefold()),
    )


def members(found: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, by name, in the order of the source."""
    if found.__name__ in WITHOUT_MEMBERS or issubclass(found, BaseException):
        return
    for name, value in vars(found).items():
        made = callable(value) or isinstance(value, property | classmethod | staticmethod)
        if not name.startswith("_") and made:
            yield name, value


def _module(name: str) -> str:
    found = importlib.import_module(name)
    parts = [f"## {name}", prose(found)]
    for each in public_names(name):
        value = getattr(found, each)
        if is_constant(each):
            parts += [
                f"### {each}",
                _code(f"{each}: {type(value).__name__} = {_short(value)}"),
                _comment(found, each),
            ]
            continue
        parts += [f"### {each}", _code(_head(each, value)), prose(value)]
        if inspect.isclass(value):
            for member, what in members(value):
                parts += [_code(_member_head(each, member, what)), prose(what)]
    return "\n\n".join(part for part in parts if part)


def is_constant(name: str) -> bool:
    """True if the name is that of a value, which has no docstring."""
    return name.isupper()


def _listed(name: str) -> str:
    """A module whose names are listed."""
    found = importlib.import_module(name)
    rows = [f"| `{each}` | {_in_a_line(found, each)} |" for each in public_names(name)]
    return "\n".join([f"## {name}", "", prose(found), "", "| name | what it is |", "|---|---|", *rows])


def _in_a_line(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if is_constant(name):
        return _comment(module, name)
    if not inspect.isroutine(value) and not inspect.isclass(value):
        return "a type for fields of descriptions"
    return prose(value).partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _comment(module: ModuleType, name: str) -> str:
    """What the comment above a constant says, in the module that the public one has it from."""
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    (home,) = {
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]
    }
    source = inspect.getsource(importlib.import_module(str(home)))
    found = re.search(rf"((?:^# .*\n)+){name}\b", source, re.MULTILINE)
    if found is None:
        raise ValueError(f"{home}.{name} is public and has no comment above it")
    return re.sub("``(.+?)``", r"`\1`", " ".join(line.removeprefix("# ") for line in found[1].splitlines()))


def _short(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= LINE_CHARACTERS_MAX else "..."


def prose(documented: Any) -> str:
    """A docstring as Markdown; ValueError where there is none."""
    text = inspect.getdoc(documented)
    if not text:
        raise ValueError(f"{documented!r} is public and has no docstring")
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    return _EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)


# ------------------------------------------------------------------------------------------ signatures


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _head(name: str, value: Any) -> str:
    """How a public name is written: a call, or the fields of a class."""
    if not inspect.isclass(value):
        return _call(name, value)
    if _is_error(value):
        return f"class {name}({value.__bases__[0].__name__})"
    if issubclass(value, enum.Enum):
        return "\n".join([f"class {name}(Enum)", *(f"    {each.name} = {each.value!r}" for each in value)])
    fields = _fields(value)
    if fields:
        return "\n".join([f"class {name}", *(f"    {field}" for field in fields)])
    return f"class {name}" if name in NOT_CONSTRUCTED else f"class {_call(name, value)}"


def _member_head(owner: str, name: str, value: Any) -> str:
    if isinstance(value, property):
        assert value.fget is not None, "it can be read"
        returned = inspect.signature(value.fget).return_annotation
        return f"{owner}.{name}: {_annotation(returned)}"
    called = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return _call(f"{owner}.{name}", called)


def _fields(found: type) -> list[str]:
    """The fields of a tuple, a struct or a dataclass, with types and defaults."""
    if issubclass(found, tuple):
        defaults = getattr(found, "_field_defaults", {})
        names: Iterable[tuple[str, Any]] = ((each, defaults.get(each, _NONE)) for each in found.__annotations__)
    elif issubclass(found, msgspec.Struct):
        names = ((each.name, each.default) for each in msgspec.structs.fields(found))
    elif dataclasses.is_dataclass(found):
        names = ((each.name, each.default) for each in dataclasses.fields(found))
    else:
        return []
    annotations = found.__annotations__
    return [
        f"{name}: {_annotation(annotations[name])}{'' if _is_missing(default) else f' = {_value(default)}'}"
        for name, default in names
    ]


_NONE = object()


def _is_missing(default: Any) -> bool:
    return default is _NONE or default is msgspec.NODEFAULT or default is dataclasses.MISSING


def _call(name: str, called: Callable[..., Any]) -> str:
    """The call with its arguments, one a line where it would be long."""
    signature = inspect.signature(called)
    pieces: list[str] = []
    star = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            pieces.append("*")
            star = True
        default = "" if parameter.default is parameter.empty else f" = {_value(parameter.default)}"
        pieces.append(f"{parameter.name}: {_annotation(parameter.annotation)}{default}")
    returned = signature.return_annotation
    after = "" if returned in (signature.empty, None, type(None), "None") else f" -> {_annotation(returned)}"
    line = f"{name}({', '.join(pieces)}){after}"
    if len(line) <= LINE_CHARACTERS_MAX:
        return line
    return "\n".join([f"{name}(", *(f"    {piece}," for piece in pieces), f"){after}"])


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return "Any"
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _MODULE_PREFIX.sub("", text)


def _value(default: Any) -> str:
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    return default.__name__ if inspect.isfunction(default) else repr(default)
