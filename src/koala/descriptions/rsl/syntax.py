"""The syntax of Globus RSL 1.0: text to subrequests of relations, variables replaced, every part with its place.

What the attributes mean is in ``rsl``. The grammar is lark's; the words are cut out here, because RSL lets its
user choose a quotation mark (``^%...%``) and joins what stands together (``$(HOME)/run``).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from lark import Lark, Token, Transformer, UnexpectedInput
from lark.lexer import Lexer

from koala.descriptions.errors import DescriptionError, SourceText, checked_source, shown
from koala.model.request import TEXT_CHARACTERS_MAX

# How deep parentheses may nest, and how many words and signs a text may have.
RSL_DEPTH_MAX = 32
RSL_TOKENS_MAX = 100_000
# How many characters variables may put into one text in all: a few of them can double each other into anything.
RSL_SUBSTITUTED_CHARACTERS_MAX = 1024 * 1024

_GRAMMAR = """
start: specification
?specification: boolean | conjunction
boolean: OPERATOR part+
conjunction: part+
part: OPEN specification CLOSE | OPEN relation CLOSE
relation: WORD RELATION value*
?value: text | group
group: OPEN value* CLOSE
text: atom (JOIN atom)*
?atom: WORD | VARIABLE
%declare OPERATOR OPEN CLOSE RELATION WORD VARIABLE JOIN
"""

_UNQUOTED = r"""[^+&|()=<>!"'^#$\s]+"""
_QUOTED = r""""(?:[^"]|"")*"|'(?:[^']|'')*'|\^(?P<mark>[^\s])(?:(?!(?P=mark)).|(?P=mark)(?P=mark))*(?P=mark)"""
_TOKEN = re.compile(
    rf"""
    (?P<SPACE>\s+|\(\*.*?\*\))
    |(?P<VARIABLE>\$\(\s*(?P<name>{_UNQUOTED})(?:\s+(?P<default>"(?:[^"]|"")*"|'(?:[^']|'')*'|{_UNQUOTED}))?\s*\))
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
_SUBSTITUTION = "rslsubstitution"
_UNCLOSED = {
    "(": ("this comment is not closed", "close it with *)"),
    '"': ("this quotation is not closed", 'close it with "; write "" for a quotation mark inside'),
    "'": ("this quotation is not closed", "close it with '; write '' for a quotation mark inside"),
    "^": ("this quotation is not closed", "write ^, a mark of your choice, the text and the mark again: ^%text%"),
    "$": ("a variable is not written like this", "write $(NAME), or quotes around text that holds a dollar sign"),
    "!": ("an exclamation mark has no meaning here", "put the text in quotes"),
}


@dataclass(frozen=True, slots=True)
class Text:
    """A value that is text; ``index`` is where it starts."""

    text: str
    index: int


@dataclass(frozen=True, slots=True)
class Group:
    """A value in parentheses that holds values."""

    values: tuple[Value, ...]
    index: int


Value: TypeAlias = Text | Group


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


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    default: str | None
    index: int


@dataclass(frozen=True, slots=True)
class _Join:
    atoms: tuple[Text | _Variable, ...]
    index: int


@dataclass(frozen=True, slots=True)
class _RawGroup:
    values: tuple[_Join | _RawGroup, ...]
    index: int


@dataclass(frozen=True, slots=True)
class _RawRelation:
    attribute: Text
    sign: str
    sign_index: int
    values: tuple[_Join | _RawGroup, ...]


@dataclass(frozen=True, slots=True)
class _Boolean:
    operator: str
    parts: tuple[_Boolean | _RawRelation, ...]
    index: int


def key_of(attribute: str) -> str:
    """An attribute as Globus compares it: case and underscores do not count."""
    return attribute.replace("_", "").lower()


def read_subrequests(text: str, source: str) -> tuple[SourceText, tuple[Subrequest, ...]]:
    """The subrequests of an RSL text, variables replaced, or DescriptionError at the first bad place."""
    content = checked_source(text, source)
    tokens = list(_tokens(content))
    if not tokens:
        raise content.error(0, "there is nothing in this text", "write &(count=8)(executable=/bin/program)")
    try:
        tree: _Boolean = _Tree().transform(_parser().parse(tokens))
    except UnexpectedInput as error:
        raise _syntax_error(content, error, tokens[-1]) from None
    reader = _Reader(content)
    return content, tuple(reader.subrequests(tree))


def _tokens(content: SourceText) -> Iterator[Token]:
    """The words and signs of the text; comments and space are left out, and what stands together is joined."""
    depth = count = index = 0
    previous: Token | None = None
    text = content.text
    while index < len(text):
        found = _TOKEN.match(text, index)
        if found is None or (found.lastgroup == "OPEN" and text.startswith("(*", index)):
            message, advice = _UNCLOSED.get(text[index], ("this sign has no meaning here", "put the text in quotes"))
            raise content.error(index, message, advice)
        kind = str(found.lastgroup)
        if kind != "SPACE":
            token = _token(kind, found)
            if _stand_together(previous, token):
                yield Token("JOIN", "#", start_pos=index)
            yield token
            previous = token
            depth += (kind == "OPEN") - (kind == "CLOSE")
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


def _token(kind: str, found: re.Match[str]) -> Token:
    value: Any = found[0]
    if kind == "VARIABLE":
        default = found["default"]
        value = (found["name"], None if default is None else _unquoted(default))
    elif kind in {"QUOTED", "UNQUOTED"}:
        value = _unquoted(value)
    terminal = "WORD" if kind in {"QUOTED", "UNQUOTED"} else kind
    token = Token(terminal, found[0], start_pos=found.start(), end_pos=found.end())
    # A token is its text; what the text means travels beside it.
    token.value = value
    return token


def _unquoted(text: str) -> str:
    mark = text[0]
    if mark == "^":
        mark, text = text[1], text[1:]
    elif mark not in "\"'":
        return text
    return text[1:-1].replace(mark * 2, mark)


def _stand_together(previous: Token | None, token: Token) -> bool:
    if previous is None or previous.end_pos != token.start_pos:
        return False
    kinds = {previous.type, token.type}
    return "VARIABLE" in kinds and kinds <= {"WORD", "VARIABLE"}


class _GivenTokens(Lexer):
    """Hands the parser the tokens that were cut out before."""

    def __init__(self, lexer_conf: Any) -> None:
        pass

    def lex(self, data: Any) -> Iterator[Token]:  # type: ignore[override]  # lark calls it with the given data alone
        return iter(data)


@functools.cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer=_GivenTokens)


class _Tree(Transformer[Token, Any]):
    """Makes the values above of lark's tree, from the leaves up."""

    def WORD(self, token: Token) -> Text:  # noqa: N802  # the name of the terminal
        return Text(token.value, token.start_pos or 0)

    def VARIABLE(self, token: Token) -> _Variable:  # noqa: N802  # the name of the terminal
        name, default = token.value
        return _Variable(name, default, token.start_pos or 0)

    def text(self, items: list[Any]) -> _Join:
        atoms = tuple(item for item in items if not isinstance(item, Token))
        return _Join(atoms, atoms[0].index)

    def group(self, items: list[Any]) -> _RawGroup:
        return _RawGroup(tuple(items[1:-1]), items[0].start_pos or 0)

    def relation(self, items: list[Any]) -> _RawRelation:
        attribute, sign, *values = items
        return _RawRelation(attribute, str(sign), sign.start_pos or 0, tuple(values))

    def part(self, items: list[Any]) -> _Boolean | _RawRelation:
        inner: _Boolean | _RawRelation = items[1]
        return inner

    def boolean(self, items: list[Any]) -> _Boolean:
        return _Boolean(str(items[0]), tuple(items[1:]), items[0].start_pos or 0)

    def conjunction(self, items: list[Any]) -> _Boolean:
        first = items[0]
        return _Boolean("&", tuple(items), first.index if isinstance(first, _Boolean) else first.attribute.index)

    def start(self, items: list[Any]) -> _Boolean:
        root: _Boolean = items[0]
        return root


class _Reader:
    """Turns the tree into subrequests and replaces the variables."""

    def __init__(self, content: SourceText) -> None:
        self.content = content
        self.characters_left = RSL_SUBSTITUTED_CHARACTERS_MAX

    def subrequests(self, root: _Boolean) -> Iterator[Subrequest]:
        if root.operator != "+":
            yield self._subrequest(root)
            return
        for part in root.parts:
            if isinstance(part, _RawRelation):
                raise self.content.error(
                    part.attribute.index,
                    f"{shown(part.attribute.text)} stands directly in a multi-request",
                    "put it in a subrequest: +(&(count=8)...)(&(count=4)...)",
                )
            yield self._subrequest(part)

    def _subrequest(self, node: _Boolean) -> Subrequest:
        relations: list[Relation] = []
        variables: dict[str, str] = {}
        for raw in self._relations(node):
            if raw.sign != "=":
                raise self.content.error(
                    raw.sign_index, f"the relation {raw.sign} is not supported", "write = and one value"
                )
            attribute = raw.attribute
            if key_of(attribute.text) == _SUBSTITUTION:
                variables |= self._definitions(raw, variables)
                continue
            values = tuple(self._value(value, variables) for value in raw.values)
            relations.append(Relation(attribute.text, key_of(attribute.text), values, attribute.index))
        return Subrequest(tuple(relations), node.index)

    def _relations(self, node: _Boolean) -> Iterator[_RawRelation]:
        if node.operator != "&":
            what = "a choice between requests (|)" if node.operator == "|" else "a multi-request inside another"
            raise self.content.error(
                node.index, f"{what} is not supported", "write one + with subrequests &(...) below it, or one &(...)"
            )
        for part in node.parts:
            if isinstance(part, _RawRelation):
                yield part
            else:
                yield from self._relations(part)

    def _definitions(self, raw: _RawRelation, known: dict[str, str]) -> dict[str, str]:
        variables = dict(known)
        for pair in raw.values:
            if not isinstance(pair, _RawGroup) or len(pair.values) != 2:
                raise self.content.error(
                    pair.index, "a variable needs a name and a value", "write (rsl_substitution = (NAME value))"
                )
            name = self._value(pair.values[0], variables)
            value = self._value(pair.values[1], variables)
            if not isinstance(name, Text) or not isinstance(value, Text):
                raise self.content.error(pair.index, "a variable's name and value are text", "write (NAME value)")
            variables[name.text] = value.text
        return variables

    def _value(self, raw: _Join | _RawGroup, variables: dict[str, str]) -> Value:
        if isinstance(raw, _RawGroup):
            return Group(tuple(self._value(value, variables) for value in raw.values), raw.index)
        parts = [atom.text if isinstance(atom, Text) else self._variable(atom, variables) for atom in raw.atoms]
        text = "".join(parts)
        if len(text) > TEXT_CHARACTERS_MAX:
            raise self.content.error(
                raw.index, f"a text of more than {TEXT_CHARACTERS_MAX} characters (TEXT_CHARACTERS_MAX)", "shorten it"
            )
        return Text(text, raw.index)

    def _variable(self, variable: _Variable, variables: dict[str, str]) -> str:
        value = variables.get(variable.name, variable.default)
        if value is None:
            raise self.content.error(
                variable.index,
                f"the variable {shown(variable.name)} is not defined",
                "define it before this place: (rsl_substitution = (NAME value))",
            )
        self.characters_left -= len(value)
        if self.characters_left < 0:
            raise self.content.error(
                variable.index,
                f"variables make more than {RSL_SUBSTITUTED_CHARACTERS_MAX} characters of text "
                "(RSL_SUBSTITUTED_CHARACTERS_MAX)",
                "use fewer or shorter variables",
            )
        return value


def _syntax_error(content: SourceText, error: UnexpectedInput, last: Token) -> DescriptionError:
    token = getattr(error, "token", None)
    if token is None or token.type == "$END":
        if last.type == "OPERATOR":
            return content.error(
                last.start_pos or 0,
                f"nothing stands after {last}",
                "write &(count=8)(executable=/bin/program), or +(&(count=8)...)(&(count=4)...)",
            )
        return content.error(len(content.text), "the text ends too early", "close every parenthesis")
    advice = {
        "OPEN": "write an attribute and = before a value, and & or + before subrequests",
        "CLOSE": "write (attribute = value) in every pair of parentheses, and close each once",
        "OPERATOR": "put text that holds +, & or | in quotes",
        "RELATION": "put text that holds =, < or > in quotes; relations look like (attribute = value)",
        "JOIN": "write # between two values, or put text that holds # in quotes",
    }.get(token.type, "relations look like (attribute = value), and each stands in parentheses")
    return content.error(token.start_pos, f"{shown(str(token))} is not expected here", advice)
