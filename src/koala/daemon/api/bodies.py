"""Reads a request's head and body within limits, and refuses bodies that cannot be valid JSON.

Everything is checked before a parser sees it, at the speed of the C code of ``json`` and ``bytes``, so that a large
hostile body costs the event loop no more than a large honest one: a few long strings.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.types import Message, Receive, Scope

from koala.daemon.api.limits import (
    BODY_DRAINED_BYTES_MAX,
    BODY_S_MAX,
    HEADER_BYTES_MAX,
    JSON_DEPTH_MAX,
    JSON_STRINGS_MAX,
    JSON_STRUCTURE_CHARACTERS_MAX,
    URL_BYTES_MAX,
    TooSlowError,
)
from koala.model.errors import InvalidError, TooLargeError

# The only parameter that may have several values.
MAY_REPEAT = frozenset({"state"})
# The form of a token's secret, see ``koala.daemon.service.tokens``.
_SECRET = re.compile(rb"(?<![\w-])koala_[\w-]{43}(?![\w-])", re.ASCII)
_NOT_BRACKETS = {code: None for code in range(128) if chr(code) not in "[]{}"}


class GoneError(Exception):
    """The client closed the connection before its request was complete."""


def check_head(scope: Scope) -> None:
    """Refuse headers that are too large, and an address that is too long, is not UTF-8, repeats a parameter, or holds
    a NUL character or the secret of a token: addresses are kept in histories and logs."""
    head_bytes = sum(len(name) + len(value) for name, value in scope["headers"])
    if head_bytes > HEADER_BYTES_MAX:
        raise TooLargeError(f"the headers have more than {HEADER_BYTES_MAX} bytes (HEADER_BYTES_MAX); send fewer")
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", errors="surrogatepass")
    query: bytes = scope["query_string"]
    if len(raw) + len(query) > URL_BYTES_MAX:
        raise TooLargeError(f"the address has more than {URL_BYTES_MAX} bytes (URL_BYTES_MAX); ask for less at once")
    for what, quoted in (("path", raw), ("query", query)):
        text = unquote_to_bytes(quoted)
        if b"\0" in text:
            raise InvalidError(f"the {what} of the address holds a NUL character; take it out")
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidError(f"the {what} of the address is not UTF-8; encode it so") from None
        if _SECRET.search(text) is not None:
            raise InvalidError(
                f"the {what} of the address holds what looks like a token, and addresses are kept in histories and "
                "logs; send it in the header Authorization, and if it is a real one have it revoked"
            )
    given: set[str] = set()
    for name, _ in parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True):
        if name in given and name not in MAY_REPEAT:
            raise InvalidError(f"{name[:100]}: the parameter is given more than once; give it once")
        given.add(name)


async def read_body(
    receive: Receive, headers: Mapping[str, str], bytes_max: int, limit_s: float = BODY_S_MAX
) -> bytes:
    """Return the whole body. Raises ``TooLargeError`` once it exceeds its limit, and ``TooSlowError`` when it takes
    too long. Bytes beyond the limit are read and discarded for a while, since a client that is still sending would
    not see the answer."""
    length = headers.get("content-length", "")
    too_large = TooLargeError(f"the body has more than {bytes_max} bytes; send less")
    if length.isdecimal() and int(length[:20]) > bytes_max and "expect" in headers:
        raise too_large
    chunks: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(limit_s):
            more = True
            while more:
                message: Message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError
                chunk: bytes = message.get("body", b"")
                size_bytes += len(chunk)
                if size_bytes <= bytes_max:
                    chunks.append(chunk)
                elif size_bytes > BODY_DRAINED_BYTES_MAX:
                    break
                more = message.get("more_body", False)
    except TimeoutError:
        if size_bytes <= bytes_max:
            raise TooSlowError(f"the body did not come within {limit_s:g} s (BODY_S_MAX)") from None
    if size_bytes > bytes_max:
        raise too_large
    return b"".join(chunks)


def check_json(body: bytes) -> None:
    """Refuse JSON that has too much outside a few strings, is nested too deeply, is not UTF-8 or holds a NUL; the
    parser checks all else. Each character is looked at once."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidError(f"the body is not UTF-8 at byte {error.start}; encode it so") from None
    # The parser takes a NUL at the beginning for a sign of another encoding.
    if "\0" in text:
        raise InvalidError("the body holds a NUL character; take it out")
    brackets = _structure(text).translate(_NOT_BRACKETS)
    for _ in range(JSON_DEPTH_MAX):
        if not brackets:
            return
        brackets = brackets.replace("[]", "").replace("{}", "")
    if brackets:
        raise InvalidError(
            f"the body is nested deeper than {JSON_DEPTH_MAX} (JSON_DEPTH_MAX), or its brackets do not match"
        )


def _structure(text: str) -> str:
    """Return the text outside the strings. A string that is not closed goes on to the end."""
    outside: list[str] = []
    size = begun = strings = 0
    while size <= JSON_STRUCTURE_CHARACTERS_MAX:
        quote = text.find('"', begun)
        end = len(text) if quote < 0 else quote
        outside.append(text[begun : min(end, begun + JSON_STRUCTURE_CHARACTERS_MAX + 1)])
        size += len(outside[-1])
        if quote < 0:
            break
        strings += 1
        if strings > JSON_STRINGS_MAX:
            raise InvalidError(f"the body has more than {JSON_STRINGS_MAX} strings (JSON_STRINGS_MAX); send fewer")
        try:
            value, begun = scanstring(text, quote + 1, False)
        except ValueError:
            break
        if "\0" in value:
            raise InvalidError("the body holds a NUL character (\\u0000); take it out")
    if size > JSON_STRUCTURE_CHARACTERS_MAX:
        raise InvalidError(
            f"the body has more than {JSON_STRUCTURE_CHARACTERS_MAX} characters outside its strings "
            "(JSON_STRUCTURE_CHARACTERS_MAX); send fewer values"
        )
    return "".join(outside)
