"""Turns the JSON schema of a file that Koala reads into tables: one for each kind of mapping in it."""

from __future__ import annotations

import json
import re
from typing import Any

Schema = dict[str, Any]

_TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}


def definitions(schema: Schema) -> frozenset[str]:
    """The names of the mappings that a schema defines, itself included."""
    return frozenset((schema["title"], *schema.get("$defs", {})))


def tables(schema: Schema, skip: frozenset[str] = frozenset()) -> str:
    """A table for the file itself and one for each mapping inside, except those described on another page."""
    below = schema.get("$defs", {})
    parts = [_section(schema, "The file", below)]
    for name, definition in below.items():
        if "properties" in definition and name not in skip:
            parts.append(_section(definition, word(name).capitalize(), below))
    return "\n\n".join(parts)


def word(name: str) -> str:
    """The name under which a mapping is spoken of: SiteFaultsText is "site faults"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Text")).lower()


def _section(schema: Schema, title: str, below: Schema) -> str:
    meaning = " ".join(schema.get("description", "").split())
    required = schema.get("required", [])
    rows = [
        f"| `{key}` | {_kind(value, below)} | {_default(key, value, required)} | {value.get('description', '')} |"
        for key, value in schema["properties"].items()
    ]
    head = ["| field | value | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"### {title}", "", meaning, "", *head, *rows])


def _default(key: str, value: Schema, required: list[str]) -> str:
    if key in required:
        return "**required**"
    default = value.get("default")
    if default is None or default in ([], {}):
        return ""
    if isinstance(default, dict):
        return "as below"
    return f"`{json.dumps(default) if isinstance(default, bool) else default}`"


def _kind(value: Schema, below: Schema) -> str:
    """What may be written for a value, in a few words."""
    if "$ref" in value:
        return _reference(value["$ref"], below)
    if "anyOf" in value:
        kinds = [_kind(each, below) for each in value["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in value:
        return _choices(value["enum"])
    kind = value.get("type")
    if kind == "array":
        if "prefixItems" in value:
            return "list of " + " and ".join(dict.fromkeys(_kind(each, below) for each in value["prefixItems"]))
        return f"list of {_kind(value['items'], below)}".replace("list of list of", "list of lists of")
    if kind == "object":
        named = value.get("additionalProperties") or next(iter(value["patternProperties"].values()))
        return f"mapping of names to {_kind(named, below)}"
    return _TYPES[str(kind)] + _range(value)


def _reference(reference: str, below: Schema) -> str:
    name = reference.rsplit("/", 1)[-1]
    choices = below[name].get("enum")
    return f"*{word(name)}*" if choices is None else _choices(choices)


def _choices(words: list[str]) -> str:
    return ", ".join(f"`{each}`" for each in words)


def _range(value: Schema) -> str:
    low, high = value.get("minimum"), value.get("maximum")
    if "exclusiveMinimum" in value:
        above = f" above {value['exclusiveMinimum']}"
        return above if high is None else f"{above}, at most {high:,}"
    if low is not None and high is not None:
        return f", {low} to {high:,}"
    return "" if low is None else f", {low} or more"
