"""The syntax of Globus RSL 1.0: text to subrequests of relations, variables replaced, everything with its place.

``koala.descriptions.rsl.reader`` defines the meaning of the attributes. The parser is a recursive descent; its tokens
are checked first, so that it never goes deeper than ``RSL_DEPTH_MAX``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from koala.descriptions.errors import DescriptionError, SourceText, checked_source, shown
from koala.model.request import TEXT_CHARACTERS_MAX

# The limit on nested parentheses, and on the words and signs of a text.
RSL_DEPTH_MAX = 32
RSL_TOKENS_MAX = 100_000
# The total text that variables may insert: a few of them can double each other without end.
RSL_SUBSTITUTED_CHARACTERS_MAX = 1024 * 1024

_UNQUOTED = r"""[^+&|()=<>!"'^#$\s]+"""
# Matches are never given back (*+): a quotation that is not closed is scanned once.
_QUOTED = r""""(?:[^"]|"")*+"|'(?:[^']|'')*+'|\^(?P<mark>[^\s])(?:(?!(?P=mark)).|(?P=mark)(?P=mark))*+(?P=mark)"""
_TOKEN = re.compile(
    rf"""
    (?P<SPACE>\s+|\(\*.*?\*\))
    |(?P<VARIABLE>\$\(\s*(?P<name>{_UNQUOTED})(?:\s+(?P<default>"(?:[^"]|"")*+"|'(?:[^']|'')*+'|{_UNQUOTED}))?\s*\))
    |(?P<OPEN>\()
    |(?P<CLOSE>\))
    |(?P<OPERATOR>[+&|])
    |(?P<RELATION>!=|<=|>=|=|<|>)
    |(?P<JOIN>\#)
    |(?P<QUOTED>{_QUOTED})
    |(?P<UNQUOTED>{_UNQUOTED})
    """,
    re.VERBOSE | re.DOTALL,
)
_END = "END"
# The kinds of tokens that may begin a value.
_VALUE_STARTS = {"WORD", "VARIABLE", "OPEN"}
_SUBSTITUTION = "rslsubstitution"
_UNCLOSED = {
    "(": ("this comment is not closed", "close it with *)"),
    '"': ("this quotation is not closed", 'close it with "; write "" for a quotation mark inside'),
    "'": ("this quotation is not closed", "close it with '; write '' for a quotation mark inside"),
    "^": ("this quotation is not closed", "write ^, a mark of your choice, the text and the mark again: ^%text%"),
    "$": ("a variable is not written like this", "write $(NAME), or quotes around text that holds a dollar sign"),
    "!": ("an exclamation mark has no meaning here", "put the text in quotes"),
}
# What to do about an unexpected token, by its kind.
_ADVICE = {
    "OPEN": "write an attribute and = before a value, and & or + before subrequests",
    "CLOSE": "write (attribute = value) in every pair of parentheses, and close each once",
    "OPERATOR": "put text that holds +, & or | in quotes",
    "RELATION": "put text that holds =, < or > in quotes; relations look like (attribute = value)",
    "JOIN": "write # between two values, or put text that holds # in quotes",
}


@dataclass(frozen=True, slots=True)
class TextValue:
    """A value that is text; ``index`` is where it starts."""

    text: str
    index: int


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A value in parentheses that holds values."""

    values: tuple[Value, ...]
    index: int


Value: TypeAlias = TextValue | GroupValue


@dataclass(frozen=True, slots=True)
class Relation:
    """``(attribute = values)`` with the variables replaced; ``key`` is the attribute as Globus compares it."""

    attribute: str
    key: str
    values: tuple[Value, ...]
    index: int


@dataclass(frozen=True, slots=True)
class Subrequest:
    """One ``&(...)``: its relations, in order."""

    relations: tuple[Relation, ...]
    index: int


@dataclass(slots=True)  # not frozen, which takes twice as long to make
class _Token:
    """A word or sign of the text. ``word`` is the meaning of a word, or a variable's name."""

    kind: str
    text: str
    index: int
    word: str = ""
    default: str | None = None


def key_of(attribute: str) -> str:
    """Return an attribute as Globus compares it: case and underscores do not count."""
    return attribute.replace("_", "").lower()


def read_subrequests(text: str, source: str) -> tuple[SourceText, tuple[Subrequest, ...]]:
    """Return the subrequests of an RSL text, variables replaced; raise DescriptionError at the first bad place."""
    content = checked_source(text, source)
    tokens = list(_tokens(content))
    if not tokens:
        raise content.error(0, "there is nothing in this text", "write &(count=8)(executable=/bin/program)")
    return content, tuple(_Parser(content, tokens).subrequests())


def _tokens(content: SourceText) -> Iterator[_Token]:
    """Yield the words and signs of the text, without comments and space; adjacent ones are joined."""
    depth = count = index = 0
    previous: _Token | None = None
    text = content.text
    while index < len(text):
        found = _TOKEN.match(text, index)
        if found is None or (found.lastgroup == "OPEN" and text.startswith("(*", index)):
            message, advice = _UNCLOSED.get(text[index], ("this sign has no meaning here", "put the text in quotes"))
            raise content.error(index, message, advice)
        if found.lastgroup != "SPACE":
            token = _token(found)
            if _stand_together(previous, token):
                yield _Token("JOIN", "#", index)
            yield token
            previous = token
            depth += (token.kind == "OPEN") - (token.kind == "CLOSE")
            count += 1
            if depth > RSL_DEPTH_MAX:
                raise content.error(
                    index, f"parentheses nest deeper than {RSL_DEPTH_MAX} (RSL_DEPTH_MAX)", "check the parentheses"
                )
            if count > RSL_TOKENS_MAX:
                raise content.error(
                    index, f"the text has more than {RSL_TOKENS_MAX} words (RSL_TOKENS_MAX)", "make it smaller"
                )
        index = found.end()


def _token(found: re.Match[str]) -> _Token:
    kind, text, index = str(found.lastgroup), found[0], found.start()
    if kind == "VARIABLE":
        default = found["default"]
        return _Token(kind, text, index, found["name"], None if default is None else _unquoted(default))
    if kind in {"QUOTED", "UNQUOTED"}:
        return _Token("WORD", text, index, _unquoted(text))
    return _Token(kind, text, index)


def _unquoted(text: str) -> str:
    mark = text[0]
    if mark == "^":
        mark, text = text[1], text[1:]
    elif mark not in "\"'":
        return text
    return text[1:-1].replace(mark * 2, mark)


def _stand_together(previous: _Token | None, token: _Token) -> bool:
    """Return True if a word and a variable, or two variables, follow each other without a space."""
    if previous is None or previous.index + len(previous.text) != token.index:
        return False
    kinds = {previous.kind, token.kind}
    return "VARIABLE" in kinds and kinds <= {"WORD", "VARIABLE"}


class _Parser:
    """A recursive descent over the tokens, with a method for each rule of the grammar; it also replaces variables."""

    def __init__(self, content: SourceText, tokens: list[_Token]) -> None:
        self._content = content
        self._tokens = iter(tokens)
        self._last = tokens[-1]
        self._next = next(self._tokens)
        self._characters_left = RSL_SUBSTITUTED_CHARACTERS_MAX

    def subrequests(self) -> Iterator[Subrequest]:
        """Parse the whole text: ``+ ( subrequest ) ...``, or one subrequest."""
        if self._next.text == "+":
            self._take("OPERATOR")
            yield self._operand()
            while self._next.kind == "OPEN":
                yield self._operand()
        else:
            yield self._subrequest()
        self._take(_END)

    def _operand(self) -> Subrequest:
        """Parse ``( subrequest )``."""
        self._take("OPEN")
        if self._next.kind == "WORD":
            raise self._content.error(
                self._next.index,
                f"{shown(self._next.word)} stands directly in a multi-request",
                "put it in a subrequest: +(&(count=8)...)(&(count=4)...)",
            )
        subrequest = self._subrequest()
        self._take("CLOSE")
        return subrequest

    def _subrequest(self) -> Subrequest:
        relations: list[Relation] = []
        index = self._conjunction(relations, {})
        return Subrequest(tuple(relations), index)

    def _conjunction(self, relations: list[Relation], variables: dict[str, str]) -> int:
        """Parse ``& ( relation ) ...``, & or not; a conjunction may stand for a relation. Returns its index."""
        indices = []
        if self._next.kind == "OPERATOR":
            operator = self._take("OPERATOR")
            if operator.text != "&":
                what = "a choice between requests (|)" if operator.text == "|" else "a multi-request inside another"
                advice = "write one + with subrequests &(...) below it, or one &(...)"
                raise self._content.error(operator.index, f"{what} is not supported", advice)
            indices.append(operator.index)
        while True:
            self._take("OPEN")
            nested = self._next.kind in {"OPERATOR", "OPEN"}
            indices.append((self._conjunction if nested else self._relation)(relations, variables))
            self._take("CLOSE")
            if self._next.kind != "OPEN":
                return indices[0]

    def _relation(self, relations: list[Relation], variables: dict[str, str]) -> int:
        """Parse ``attribute = value ...``. Returns its index."""
        attribute = self._take("WORD")
        sign = self._take("RELATION")
        if sign.text != "=":
            raise self._content.error(
                sign.index, f"the relation {sign.text} is not supported", "write = and one value"
            )
        key = key_of(attribute.word)
        if key == _SUBSTITUTION:
            self._definitions(variables)
        else:
            relations.append(Relation(attribute.word, key, self._values(variables), attribute.index))
        return attribute.index

    def _definitions(self, variables: dict[str, str]) -> None:
        """Parse ``( NAME value ) ...``, where a value may use the variables before it."""
        while self._next.kind in _VALUE_STARTS:
            pair = self._value(variables)
            if not isinstance(pair, GroupValue) or len(pair.values) != 2:
                raise self._content.error(
                    pair.index, "a variable needs a name and a value", "write (rsl_substitution = (NAME value))"
                )
            name, value = pair.values
            if not isinstance(name, TextValue) or not isinstance(value, TextValue):
                raise self._content.error(pair.index, "a variable's name and value are text", "write (NAME value)")
            variables[name.text] = value.text

    def _values(self, variables: dict[str, str]) -> tuple[Value, ...]:
        values = []
        while self._next.kind in _VALUE_STARTS:
            values.append(self._value(variables))
        return tuple(values)

    def _value(self, variables: dict[str, str]) -> Value:
        """Parse ``( value ... )``, or words and variables with # between them, which make one text."""
        index = self._next.index
        if self._next.kind == "OPEN":
            self._take("OPEN")
            values = self._values(variables)
            self._take("CLOSE")
            return GroupValue(values, index)
        atoms = [self._atom(variables)]
        while self._next.kind == "JOIN":
            self._take("JOIN")
            atoms.append(self._atom(variables))
        text = "".join(atoms)
        if len(text) > TEXT_CHARACTERS_MAX:
            raise self._content.error(
                index, f"a text of more than {TEXT_CHARACTERS_MAX} characters (TEXT_CHARACTERS_MAX)", "shorten it"
            )
        return TextValue(text, index)

    def _atom(self, variables: dict[str, str]) -> str:
        """Return a word, or the value of a variable."""
        if self._next.kind != "VARIABLE":
            return self._take("WORD").word
        variable = self._take("VARIABLE")
        value = variables.get(variable.word, variable.default)
        if value is None:
            raise self._content.error(
                variable.index,
                f"the variable {shown(variable.word)} is not defined",
                "define it before this place: (rsl_substitution = (NAME value))",
            )
        self._characters_left -= len(value)
        if self._characters_left < 0:
            raise self._content.error(
                variable.index,
                f"variables make more than {RSL_SUBSTITUTED_CHARACTERS_MAX} characters of text "
                "(RSL_SUBSTITUTED_CHARACTERS_MAX)",
                "use fewer or shorter variables",
            )
        return value

    def _take(self, kind: str) -> _Token:
        token = self._next
        if token.kind != kind:
            raise self._unexpected(token)
        self._next = next(self._tokens, _Token(_END, "", len(self._content.text)))
        return token

    def _unexpected(self, token: _Token) -> DescriptionError:
        if token.kind != _END:
            otherwise = "relations look like (attribute = value), and each stands in parentheses"
            advice = _ADVICE.get(token.kind, otherwise)
            return self._content.error(token.index, f"{shown(token.text)} is not expected here", advice)
        if self._last.kind == "OPERATOR":
            return self._content.error(
                self._last.index,
                f"nothing stands after {self._last.text}",
                "write &(count=8)(executable=/bin/program), or +(&(count=8)...)(&(count=4)...)",
            )
        return self._content.error(token.index, "the text ends too early", "close every parenthesis")
