"""YAML text to a pydantic model, every problem reported at its line and column.

``read_yaml`` is the whole way; ``read_document`` also returns the document, for checks that a model cannot make
alone. The tree and its limits are in ``koala.descriptions.yaml.nodes``, the wording of pydantic's
errors in ``koala.descriptions.yaml.problems``.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from koala.descriptions.errors import ERRORS_MAX, DescriptionError, Problem, SourceText
from koala.descriptions.yaml.nodes import DEPTH_MAX, NODES_MAX, Composed, YamlNode, compose
from koala.descriptions.yaml.problems import Wording, worded

__all__ = ["DEPTH_MAX", "NODES_MAX", "Document", "read_composed", "read_document", "read_yaml"]

M = TypeVar("M", bound=BaseModel)

# If a model wants text and the user wrote 4000, the text is used as written and validated again. Each round can
# uncover more such places, behind a validator that ran only now.
_ROUNDS_MAX = 4
_TEXT_WANTED = frozenset({"string_type", "string_sub_type"})


class FoundNode(NamedTuple):
    """A place in the tree: the node, the key before it, and the steps from the root that led there."""

    node: YamlNode
    key: YamlNode | None
    steps: tuple[str | int, ...]


class Document(Generic[M]):
    """A document that was read: the model, and the place of each part in the text."""

    def __init__(self, content: SourceText, root: YamlNode) -> None:
        self.content = content
        self.root = root
        self.model: M

    def find(self, path: Sequence[str | int]) -> FoundNode:
        """Return the place that a path names; steps that are not in the tree (names of union branches)
        are passed over."""
        found = FoundNode(self.root, None, ())
        for step in path:
            content = found.node.content
            if isinstance(content, dict) and isinstance(step, str) and step in content:
                key, node = content[step]
                found = FoundNode(node, key, (*found.steps, step))
            elif isinstance(content, list) and isinstance(step, int) and 0 <= step < len(content):
                found = FoundNode(content[step], None, (*found.steps, step))
        return found

    def problem(self, path: Sequence[str | int], message: str, advice: str, *, at_key: bool = False) -> Problem:
        """Return a problem at the value that a path names, or at its key."""
        found = self.find(path)
        # An empty value has no visible place of its own.
        use_key = found.key is not None and (at_key or (found.node.plain and not found.node.raw))
        node = found.key if use_key and found.key is not None else found.node
        return self.content.problem(node.index, message, advice)

    def error(self, path: Sequence[str | int], message: str, advice: str) -> DescriptionError:
        """Return the error for one problem at the value that a path names."""
        return DescriptionError(self.content.source, [self.problem(path, message, advice)])


def read_yaml(text: str, source: str, model: type[M]) -> M:
    """Read the text as the model, or raise DescriptionError with every problem found (up to ERRORS_MAX)."""
    return read_document(text, source, model).model


def read_document(text: str, source: str, model: type[M]) -> Document[M]:
    """Read the text as the model and keep the places, or raise DescriptionError as ``read_yaml`` does."""
    return read_composed(compose(text, source), model)


def read_composed(composed: Composed, model: type[M]) -> Document[M]:
    """Read a text whose tree exists already, as ``read_document`` does."""
    content, root, problems = composed
    document: Document[M] = Document(content, root)
    value = root.value()
    for _ in range(_ROUNDS_MAX):
        try:
            document.model = model.model_validate(value)
        except ValidationError as error:
            details = error.errors(include_url=False)
        else:
            details = []
        if not _take_as_text(document, value, details):
            break
    told = [detail for detail in details if not _is_echo(detail)] or details
    if problems or told:
        # To word a problem takes a thousand times as long as to find it, so only reported ones are worded.
        first = heapq.nsmallest(ERRORS_MAX, told, key=lambda detail: _place(document, detail))
        problems = [*problems, *(_positioned(document, worded(detail, model)) for detail in first)]
        raise DescriptionError(content.source, dict.fromkeys(problems), unreported=len(told) - len(first))
    return document


def _take_as_text(document: Document[M], value: Any, details: list[ErrorDetails]) -> bool:
    """Put the text as written where text was wanted; return True if anything changed."""
    changed = False
    for detail in details:
        node, _, steps = document.find(detail["loc"])
        if detail["type"] not in _TEXT_WANTED or not steps or not node.plain or node.content is None:
            continue
        container = value
        for step in steps[:-1]:
            container = container[step]
        if container[steps[-1]] != node.raw:
            container[steps[-1]] = node.raw
            changed = True
    return changed


def _is_echo(detail: ErrorDetails) -> bool:
    """Return True if a list only seems too short because its bad entries, each with its own problem,
    did not count."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _place(document: Document[M], detail: ErrorDetails) -> int:
    """Return the approximate place of a problem: a problem with a key stands at its key."""
    found = document.find(detail["loc"])
    return found.node.index if found.key is None else found.key.index


def _positioned(document: Document[M], wording: Wording) -> Problem:
    return document.problem(wording.path, wording.message, wording.advice, at_key=wording.at_key)
