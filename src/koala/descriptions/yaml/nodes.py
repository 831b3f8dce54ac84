"""YAML text to a tree of nodes that keep their places, built from parser events under limits.

Scalars are read by the rules of YAML 1.2, so that ``no``, ``on`` and ``1:30`` stay text. Nothing here interprets a
document, and nothing here constructs objects from tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import yaml

from koala.descriptions.errors import (
    ERRORS_MAX,
    LARGE_TEXT_BYTES_MAX,
    NOT_TEXT,
    TEXT_LIMIT,
    DescriptionError,
    Limit,
    Problem,
    SourceText,
    checked_source,
    shown,
)

# Limits on one document; an alias counts as everything that it stands for.
DEPTH_MAX = 32
NODES_MAX = 100_000
EXPANDED_CHARACTERS_MAX = 2 * 1024 * 1024
# The same limits for files of task graphs and of machines.
LARGE_NODES_MAX = 5_000_000
LARGE_EXPANDED_CHARACTERS_MAX = 128 * 1024 * 1024
# The parser compares each of these with all the others, and none has a use here.
TAG_DIRECTIVES_MAX = 100


class DocumentSize(NamedTuple):
    """The limits of a document: its text, its values, and their characters with all aliases expanded."""

    text: Limit = TEXT_LIMIT
    nodes: Limit = Limit("NODES_MAX", NODES_MAX)
    characters: Limit = Limit("EXPANDED_CHARACTERS_MAX", EXPANDED_CHARACTERS_MAX)


USUAL = DocumentSize()
LARGE = DocumentSize(
    Limit("LARGE_TEXT_BYTES_MAX", LARGE_TEXT_BYTES_MAX),
    Limit("LARGE_NODES_MAX", LARGE_NODES_MAX),
    Limit("LARGE_EXPANDED_CHARACTERS_MAX", LARGE_EXPANDED_CHARACTERS_MAX),
)

Scalar: TypeAlias = str | int | float | bool | None

# A tuple made once: there may be a hundred thousand values, each of which is checked several times.
_COLLECTIONS = (list, dict)
_SCALAR = yaml.ScalarEvent

# libyaml if it is built in: the same events, many times faster.
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# Longer runs of digits are no count of anything; they stay text and are refused as such.
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_SPECIAL_FLOATS = {
    sign + name: float(sign + name[1:]) for sign in ("", "+", "-") for name in (".inf", ".Inf", ".INF")
} | {name: float("nan") for name in (".nan", ".NaN", ".NAN")}

# Characters that YAML does not allow.
_UNWANTED = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_HINTS = (
    ("tab character", "indent with spaces, not tabs"),
    ("cannot start any token", "indent with spaces, not tabs, and put quotes around text that starts with @, ` or %"),
    ("mapping values are not allowed", 'put quotes around text that holds ": ", and check the indentation'),
    ("block end", "check the indentation: the entries of one mapping or list start in the same column"),
    ("simple key", 'write "key: value", with a colon and a space'),
    ("unexpected ':'", "put a space after the colon, and quotes around text that holds one"),
    ("flow", "close every [ with ] and every { with }, with commas between the entries"),
    ("quoted scalar", "close the quotes"),
    ("escape", "write backslashes in 'single quotes', where they mean nothing"),
)


class YamlNode:
    """A value of the document: ``content`` is a scalar, a list of nodes, or (key node, node) pairs by key."""

    __slots__ = ("characters", "content", "height", "index", "nodes", "plain", "raw")

    def __init__(self, index: int, content: Content, *, raw: str = "", plain: bool = False) -> None:
        self.index = index
        self.content = content
        self.raw = raw
        self.plain = plain
        # The depth of collections in the node, and the nodes and characters in it and below it.
        self.height = 1 if isinstance(content, _COLLECTIONS) else 0
        self.nodes = 1
        self.characters = len(raw)

    def value(self) -> Any:
        """Return the node as plain Python values."""
        if isinstance(self.content, dict):
            return {key: node.value() for key, (_, node) in self.content.items()}
        if isinstance(self.content, list):
            return [node.value() for node in self.content]
        return self.content


Content: TypeAlias = Scalar | list[YamlNode] | dict[str, tuple[YamlNode, YamlNode]]


def scalar_value(raw: str) -> Scalar:
    """Return the meaning of an unquoted scalar in YAML 1.2."""
    if raw in _NULLS:
        return None
    if raw in _BOOLEANS:
        return _BOOLEANS[raw]
    if _INTEGER.fullmatch(raw):
        return int(raw)
    if _FLOAT.fullmatch(raw) and not raw.lstrip("+-").isdigit():
        return float(raw)
    return _SPECIAL_FLOATS.get(raw, raw)


class _Builder:
    """Builds one document from its events, and keeps the problems that do not stop the reading."""

    def __init__(self, content: SourceText, size: DocumentSize) -> None:
        self.content = content
        self.size = size
        self.problems: list[Problem] = []
        self.anchors: dict[str, YamlNode] = {}
        self.nodes = 0
        self.characters = 0
        # Open collections: the node, its anchor, and for a mapping the key that waits for its value.
        self.open: list[tuple[YamlNode, str | None]] = []
        self.keys: list[YamlNode | None] = []
        self.root: YamlNode | None = None

    def take(self, event: Any) -> None:
        index: int = event.start_mark.index
        if isinstance(event, _SCALAR):  # like most
            self._refuse_tag(event.tag, index)
            value = event.value
            self._refuse_not_text(value, index)
            plain = not event.style
            node = YamlNode(index, scalar_value(value) if plain else value, raw=value, plain=plain)
            self._add(node)
            self._anchor(event.anchor, node)
        elif isinstance(event, yaml.DocumentStartEvent):
            if self.root is not None:
                raise self.content.error(
                    index, "a second document starts here", "keep one document in the file, without '---' in it"
                )
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._aliased(str(event.anchor), index))
        elif isinstance(event, yaml.CollectionStartEvent):
            self._refuse_tag(event.tag, index)
            if len(self.open) >= DEPTH_MAX:
                raise self._too_deep(index)
            collection: Content = {} if isinstance(event, yaml.MappingStartEvent) else []
            self.open.append((YamlNode(index, collection), event.anchor))
            self.keys.append(None)
        elif isinstance(event, yaml.CollectionEndEvent):
            node, anchor = self.open.pop()
            self.keys.pop()
            self._add(node)
            self._anchor(anchor, node)

    def _add(self, node: YamlNode) -> None:
        """Give a complete node to the open collection, or make it the root."""
        # The nodes below this one were counted when they were added, unless they come through an alias.
        self.nodes += 1
        if self.nodes > self.size.nodes.most:
            most, name = self.size.nodes.most, self.size.nodes.name
            raise self.content.error(
                node.index, f"the document has more than {most} values ({name})", "make it smaller"
            )
        if not isinstance(node.content, _COLLECTIONS):
            self.characters += node.characters
            if self.characters > self.size.characters.most:
                raise self._too_long(node.index)
        if not self.open:
            self.root = node
            return
        parent = self.open[-1][0]
        if parent.height <= node.height:
            parent.height = node.height + 1
        parent.nodes += node.nodes
        parent.characters += node.characters
        if isinstance(parent.content, list):
            parent.content.append(node)
            return
        assert isinstance(parent.content, dict), "only collections are open"
        key = self.keys[-1]
        if key is None:
            self.keys[-1] = node
        else:
            self._set(parent.content, key, node)
            self.keys[-1] = None

    def _set(self, mapping: dict[str, tuple[YamlNode, YamlNode]], key: YamlNode, node: YamlNode) -> None:
        if isinstance(key.content, _COLLECTIONS):
            self._complain(key, "a list or mapping stands where a key should", "write a name before the colon")
        elif key.raw in mapping:
            first = self.content.problem(mapping[key.raw][0].index, "", "").line
            self._complain(
                key, f"the key {shown(key.raw)} is given twice; first in line {first}", "keep one of the two"
            )
        else:
            mapping[key.raw] = (key, node)

    def _aliased(self, name: str, index: int) -> YamlNode:
        node = self.anchors.get(name)
        if node is None:
            raise self.content.error(
                index,
                f"the alias *{name} stands for nothing yet",
                f"define the anchor &{name} before it, and not around it",
            )
        self.nodes += node.nodes - 1
        if isinstance(node.content, _COLLECTIONS):
            self.characters += node.characters
            if self.characters > self.size.characters.most:
                raise self._too_long(index)
        if len(self.open) + node.height > DEPTH_MAX:
            raise self._too_deep(index)
        return node

    def _anchor(self, name: str | None, node: YamlNode) -> None:
        if name is not None:
            self.anchors[name] = node

    def _refuse_tag(self, tag: str | None, index: int) -> None:
        if tag is not None:
            self._note(
                index, f"the tag {shown(tag)} has no meaning here", "take the tag out; quotes make text of anything"
            )

    def _refuse_not_text(self, value: str, index: int) -> None:
        # An escape in double quotes can write what the text itself may not contain.
        if NOT_TEXT.search(value):
            self._note(index, "this text holds NUL or half of a surrogate pair", "take the escape out")

    def _too_long(self, index: int) -> DescriptionError:
        return self.content.error(
            index,
            f"the document has more than {self.size.characters.most} characters with its aliases written out "
            f"({self.size.characters.name})",
            "use fewer aliases, or for shorter texts",
        )

    def _too_deep(self, index: int) -> DescriptionError:
        return self.content.error(
            index,
            f"lists and mappings are nested deeper than {DEPTH_MAX} (DEPTH_MAX)",
            "no description nests so deep; check the brackets and the indentation",
        )

    def _complain(self, node: YamlNode, message: str, advice: str) -> None:
        self._note(node.index, message, advice)

    def _note(self, index: int, message: str, advice: str) -> None:
        self.problems.append(self.content.problem(index, message, advice))
        if len(self.problems) > ERRORS_MAX:
            raise DescriptionError(self.content.source, self.problems, stopped=True)


def _events(content: SourceText) -> Iterator[Any]:
    loader = _PARSER(content.text)
    there_is_one, get = loader.check_event, loader.get_event
    try:
        while there_is_one():
            yield get()
    finally:
        loader.dispose()


class Composed(NamedTuple):
    """A text, the root of its tree, and the problems that did not stop the reading."""

    content: SourceText
    root: YamlNode
    problems: list[Problem]


def compose(text: str, source: str, size: DocumentSize = USUAL) -> Composed:
    """Return the tree of a text.

    Raises DescriptionError if there is none: bad syntax, a limit, an empty text.
    """
    content = checked_source(text, source, size.text)
    unwanted = _UNWANTED.search(content.text)
    if unwanted is not None:
        raise content.error(
            unwanted.start(),
            f"the control character U+{ord(unwanted[0]):04X} stands here",
            "take it out, or write it as an escape in double quotes",
        )
    if content.text.count("\n%TAG") > TAG_DIRECTIVES_MAX:
        raise content.error(
            content.text.index("\n%TAG") + 1,
            f"there are more than {TAG_DIRECTIVES_MAX} %TAG directives (TAG_DIRECTIVES_MAX)",
            "take them out; tags have no meaning here",
        )
    builder = _Builder(content, size)
    try:
        for event in _events(content):
            builder.take(event)
    except yaml.YAMLError as error:
        raise _syntax_error(content, error) from None
    except DescriptionError:
        raise
    except (ValueError, OverflowError):
        # The parser in Python passes an escape beyond Unicode to chr(); libyaml reports it with its place.
        raise content.error(0, "this is not YAML: an escape names no character", "correct the \\U escape") from None
    if builder.root is None:
        raise content.error(0, "there is nothing in this text", "write a mapping: 'key: value' lines")
    return Composed(content, builder.root, builder.problems)


def _syntax_error(content: SourceText, error: yaml.YAMLError) -> DescriptionError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    parts = (getattr(error, "context", None), getattr(error, "problem", None), getattr(error, "reason", None))
    words = " ".join(part for part in parts if part)
    advice = next((advice for part, advice in _HINTS if part in words), "check the YAML syntax at this place")
    return content.error(mark.index if mark is not None else 0, f"this is not YAML: {words}", advice)
