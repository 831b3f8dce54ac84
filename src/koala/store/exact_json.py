"""Values to JSON and back with nothing lost: also text that UTF-8 cannot write, and numbers that are not finite.

msgspec does nearly everything, fast. It refuses halves of surrogate pairs, which come with file names that are not
UTF-8, and writes null for infinity; such a value goes through the standard library, which keeps both.
"""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar

import msgspec

from koala.model.messages import AnyCommand, AnyEvent

T = TypeVar("T")


class ExactJson(Generic[T]):
    """The JSON form of one type: ``decode(encode(value)) == value``."""

    def __init__(self, form: Any) -> None:
        self._form = form
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(form)

    def encode(self, value: T) -> bytes:
        """ASCII or UTF-8, without NUL."""
        try:
            data = self._encoder.encode(value)
        except UnicodeEncodeError:
            return self._encode_slowly(value)
        return data if b"null" not in data or self._is(data, value) else self._encode_slowly(value)

    def decode(self, data: bytes) -> T:
        """Raises ``ValueError`` for what is not this type's JSON."""
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

    def _encode_slowly(self, value: T) -> bytes:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


# What a journal entry of each kind holds.
BODY: dict[str, ExactJson[Any]] = {"event": ExactJson(AnyEvent), "command": ExactJson(AnyCommand)}
