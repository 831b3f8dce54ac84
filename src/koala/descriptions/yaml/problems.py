"""The wording of pydantic's findings: each of its errors becomes a message, advice and a place in the document.

Validators of our models state their problems with ``wrong``; everything else is translated by kind.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from koala.descriptions.errors import printable, shown

NAME_ADVICE = "write letters, digits, dots, underscores and dashes, the first a letter or a digit"

_OUR_KIND = "koala"
# At most this many known words are listed beside a near match, and if no word is similar.
_LISTED_MAX = 12
# The nearest word is sought among at most this many known ones.
_COMPARED_MAX = 1_000
_LISTED_ALONE_MAX = 50
# A shorter word is no recognisable abbreviation.
_SHORT_LETTERS_MIN = 3


class Wording(NamedTuple):
    """The words for the user about one error, and its part of the document."""

    path: tuple[str | int, ...]
    message: str
    advice: str
    at_key: bool = False


def wrong(message: str, advice: str, *at: str | int) -> PydanticCustomError:
    """Return an error for a validator to raise; ``at`` leads from the validated value to the wrong part."""
    return PydanticCustomError(_OUR_KIND, "{message}", {"message": message, "advice": advice, "at": at})


def text_wanted() -> PydanticCustomError:
    """Return an error for a validator that wants text: the reader then tries again with the text as written."""
    return PydanticCustomError("string_type", "Input should be a valid string")


def worded(detail: ErrorDetails, model: type[BaseModel]) -> Wording:
    """Return the wording of one of pydantic's errors about this model."""
    path = detail["loc"]
    kind = detail["type"]
    context: dict[str, Any] = detail.get("ctx", {})
    if kind == _OUR_KIND:
        at_key = path[-1:] == ("[key]",)
        return Wording((*path, *context["at"]), context["message"], context["advice"], at_key)
    if kind == "missing":
        return _missing(path, model)
    if kind == "extra_forbidden":
        return _unknown_key(path, model)
    at_key = bool(path) and path[-1] == "[key]"
    named = [step for step in path if step != "[key]"]
    name = f"{printable(named[-1])}: " if named and isinstance(named[-1], str) and not at_key else ""
    value = shown(detail["input"])
    phrase = _PHRASES.get(kind)
    if phrase is not None:
        message, advice = phrase(value, context)
        return Wording(path, name + message, advice, at_key)
    field = _field_at(path, model)
    advice = field.description if field is not None and field.description else "write another value"
    return Wording(path, f"{name}{detail['msg']}", advice, at_key)


def nearest(word: str, known: Sequence[str]) -> str:
    """Return advice for an unknown word: the nearest known one, and all of them if that is not much to read."""
    by_lower = {name.lower(): name for name in known[:_COMPARED_MAX]}
    matches = _short_for(word.lower()[:100], by_lower)
    matches = matches or difflib.get_close_matches(word.lower()[:100], by_lower, n=1, cutoff=0.6)
    advice = [f"did you mean '{by_lower[matches[0]]}'?"] if matches else []
    if not matches or len(known) <= _LISTED_MAX:
        more = f" and {len(known) - _LISTED_ALONE_MAX} more" if len(known) > _LISTED_ALONE_MAX else ""
        advice.append(f"known here: {', '.join(known[:_LISTED_ALONE_MAX]) or 'none'}{more}")
    return " ".join(advice)


def _short_for(word: str, known: Iterable[str]) -> list[str]:
    """Return the shortest known word that begins with the same letter and has all letters of this one in their order.

    procs is short for processors, and not for probes, which shares as many letters with it.
    """
    if len(word) < _SHORT_LETTERS_MIN:
        return []
    return sorted((each for each in known if each[:1] == word[:1] and _is_within(word, each)), key=len)[:1]


def _is_within(word: str, longer: str) -> bool:
    letters = iter(longer)
    return all(letter in letters for letter in word)


def _missing(path: tuple[str | int, ...], model: type[BaseModel]) -> Wording:
    name = path[-1]
    field = _field_at(path[:-1] if isinstance(name, int) else path, model)
    meaning = field.description if field is not None and field.description else "it has no default"
    if isinstance(name, int):
        return Wording(path[:-1], f"the list has no entry {name + 1}", meaning)
    return Wording(path[:-1], f"'{name}' is missing", f"write '{name}: ...': {meaning}")


def _unknown_key(path: tuple[str | int, ...], model: type[BaseModel]) -> Wording:
    here = _models_at(path[:-1], model)
    known = [key for found in here for key, _ in _fields(found)]
    key = str(path[-1])
    advice = nearest(key, known) if known else "take it out"
    inside = [name for found in here for name, field in _fields(found) if key in _keys_in(field)]
    if inside and not difflib.get_close_matches(key[:100], known, n=1, cutoff=0.7):
        advice = f"it belongs into '{inside[0]}': write {inside[0]}: {{{key}: ...}}"
    return Wording(path, f"{shown(key)} is not a key that is known here", advice, at_key=True)


def _keys_in(field: FieldInfo) -> list[str]:
    return [key for found in _models_in(field.annotation) for key, _ in _fields(found)]


def _models_at(path: Sequence[str | int], model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models that a path may lead to; names of union branches and of mapping keys are skipped."""
    models = [model]
    for step in path:
        fields = [field for found in models for key, field in _fields(found) if key == step]
        if fields:
            models = [found for field in fields for found in _models_in(field.annotation)]
    return models


def _field_at(path: Sequence[str | int], model: type[BaseModel]) -> FieldInfo | None:
    if not path:
        return None
    for found in _models_at(path[:-1], model):
        for key, field in _fields(found):
            if key == path[-1]:
                return field
    return None


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        yield field.alias or name, field


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def _whole_number(value: str, _: dict[str, Any]) -> tuple[str, str]:
    return f"{value} is not a whole number", "write digits, without quotes or a fraction"


def _number(value: str, _: dict[str, Any]) -> tuple[str, str]:
    return f"{value} is not a number", "write a number, without quotes or a unit"


def _truth(value: str, _: dict[str, Any]) -> tuple[str, str]:
    return f"{value} is neither true nor false", "write true or false"


def _text(value: str, _: dict[str, Any]) -> tuple[str, str]:
    return f"{value} stands where text is wanted", "write text; in quotes if it looks like something else"


def _list(value: str, _: dict[str, Any]) -> tuple[str, str]:
    return f"{value} stands where a list is wanted", "write a list: [a, b], or lines that start with '- '"


def _mapping(value: str, _: dict[str, Any]) -> tuple[str, str]:
    return f"{value} stands where a mapping is wanted", "write a mapping: {key: value}, or 'key: value' lines"


def _choice(value: str, context: dict[str, Any]) -> tuple[str, str]:
    return f"{value} is not one of the choices", f"write {context['expected']}"


def _pattern(value: str, _: dict[str, Any]) -> tuple[str, str]:
    # Names are the only values with a pattern in a model.
    return f"{value} is not a name", NAME_ADVICE


_PHRASES: dict[str, Callable[[str, dict[str, Any]], tuple[str, str]]] = {
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "int_parsing_size"), _whole_number),
    **dict.fromkeys(("float_type", "float_parsing"), _number),
    **dict.fromkeys(("bool_type", "bool_parsing"), _truth),
    **dict.fromkeys(("string_type", "string_sub_type"), _text),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "iterable_type"), _list),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "mapping_type"), _mapping),
    **dict.fromkeys(("enum", "literal_error"), _choice),
    "string_pattern_mismatch": _pattern,
    "value_error": lambda value, context: (str(context["error"]), f"write something else than {value}"),
    "finite_number": lambda value, _: (f"{value} is not a finite number", "write a finite number"),
    "greater_than": lambda value, context: (f"{value} is too small", f"write more than {context['gt']:g}"),
    "greater_than_equal": lambda value, context: (f"{value} is too small", f"write {context['ge']:g} or more"),
    "less_than": lambda value, context: (f"{value} is too large", f"write less than {context['lt']:g}"),
    "less_than_equal": lambda value, context: (f"{value} is too large", f"write {context['le']:.10g} or less"),
    "string_too_short": lambda _, context: (
        "the text is too short",
        f"write {context['min_length']} characters or more",
    ),
    "string_too_long": lambda _, context: (
        "the text is too long",
        f"write {context['max_length']} characters or fewer",
    ),
    "too_short": lambda _, context: ("there are too few entries", f"write {context['min_length']} or more"),
    "too_long": lambda _, context: ("there are too many entries", f"write {context['max_length']} or fewer"),
}
