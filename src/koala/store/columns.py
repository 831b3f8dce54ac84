"""How values become columns: text that operators can read in ``psql`` and ``sqlite3``, and that comes back exactly.

Neither database stores NUL in its text, nor half of a surrogate pair, which file names contain that are not UTF-8.
JSON writes both as escapes, ``\\u0000`` and ``\\udc80``; so does plain text here, where a backslash is doubled.
"""

from __future__ import annotations

import json
import re
import types
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

import msgspec
from sqlalchemy import BigInteger, Boolean, Column, Dialect, Double, Integer, Text, TypeDecorator
from sqlalchemy.types import TypeEngine

T = TypeVar("T")

# 64 bits in both databases; SQLite makes a key of this type the row's own number.
Whole = BigInteger().with_variant(Integer(), "sqlite")
# Compared and ordered by its UTF-8 bytes, whatever the language of the server.
PlainText = Text().with_variant(Text(collation="C"), "postgresql")

_KEPT_AS_ESCAPE = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(?:\\|u([0-9a-f]{4}))")


def escaped(value: str) -> str:
    """Return the stored form of a text."""
    return _KEPT_AS_ESCAPE.sub(lambda found: r"\\" if found[0] == "\\" else f"\\u{ord(found[0]):04x}", value)


def unescaped(value: str) -> str:
    """Return the text of a stored form."""
    return _ESCAPE.sub(lambda found: "\\" if found[1] is None else chr(int(found[1], 16)), value)


class ExactJson(Generic[T]):
    """The JSON form of one type: ``decode(encode(value)) == value``.

    msgspec handles nearly all values, fast. It refuses halves of surrogate pairs and writes null for infinity; the
    standard library handles such a value, and keeps both.
    """

    def __init__(self, form: Any) -> None:
        self._form = form
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(form)

    def encode(self, value: T) -> str:
        """Return a text without NUL and halves of surrogate pairs."""
        try:
            data = self._encoder.encode(value)
        except UnicodeEncodeError:
            return self._encode_slowly(value)
        return data.decode() if b"null" not in data or self._is(data, value) else self._encode_slowly(value)

    def decode(self, data: str) -> T:
        """Return the value. Raises ``ValueError`` if the text is not this type's JSON."""
        try:
            return self._decoder.decode(data)
        except msgspec.DecodeError:
            value: T = msgspec.convert(json.loads(data), self._form)
            return value

    def _is(self, data: bytes, value: T) -> bool:
        try:
            return self._decoder.decode(data) == value
        except msgspec.DecodeError:
            return False

    def _encode_slowly(self, value: T) -> str:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


class TextColumn(TypeDecorator[str]):
    """Any Python text; members of enumerations are stored as their values."""

    impl = PlainText
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else escaped(str(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else unescaped(_checked(value))


class JsonColumn(TypeDecorator[Any]):
    """A value of one type, in its exact JSON form."""

    impl = PlainText
    cache_ok = True

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.form = form
        self._json: ExactJson[Any] = ExactJson(form)

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else self._json.encode(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else self._json.decode(_checked(value))


def _checked(value: object) -> str:
    """Return a text of the database. Raises ``ValueError`` for other values, which SQLite accepts in a column of any
    type."""
    if not isinstance(value, str):
        raise ValueError(f"a column of text holds {type(value).__name__}")
    return value


def columns_of(row: type[msgspec.Struct], *, key: str) -> list[Column[Any]]:
    """Return a column for each field, with its name, type and default. Values other than text, numbers and booleans
    are JSON."""
    return [_column(field, is_key=field.name == key) for field in msgspec.structs.fields(row)]


def _column(field: msgspec.structs.FieldInfo, *, is_key: bool) -> Column[Any]:
    form = field.type
    nullable = isinstance(form, types.UnionType) and types.NoneType in get_args(form)
    if nullable:
        (form,) = (each for each in get_args(form) if each is not types.NoneType)
    default = str(field.default) if form in (int, float) and isinstance(field.default, int | float) else None
    return Column(
        field.name,
        _column_type(form),
        primary_key=is_key,
        nullable=nullable,
        autoincrement=False,
        server_default=default,
    )


def _column_type(form: Any) -> TypeEngine[Any]:
    if form is str or get_origin(form) is Literal:
        return TextColumn()
    simple: dict[Any, TypeEngine[Any]] = {int: Whole, float: Double(), bool: Boolean()}
    return simple.get(form) or JsonColumn(form)
