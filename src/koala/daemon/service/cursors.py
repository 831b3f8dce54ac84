"""Cursors: the position in a long list, as opaque text for the caller, checked when it comes back."""

from __future__ import annotations

import base64
import binascii

from koala.model.api import PAGE_ITEMS_MAX
from koala.model.errors import InvalidError
from koala.store import NUMBER_MAX

# Longer than any valid cursor: a file's name of 1,024 characters, encoded.
CURSOR_CHARACTERS_MAX = 8_192


def write_cursor(listing: str, after: str) -> str:
    """Return the cursor of the items that follow ``after`` in a listing."""
    text = f"{listing}:{after}".encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(text).decode("ascii").rstrip("=")


def read_cursor(listing: str, cursor: str) -> str:
    """Return the position of a cursor. Raises ``InvalidError`` if it is not one of this listing."""
    if len(cursor) <= CURSOR_CHARACTERS_MAX:
        try:
            padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
            text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
        except (UnicodeError, binascii.Error):
            text = ""
        if text.startswith(f"{listing}:"):
            return text.removeprefix(f"{listing}:")
    raise _not_a_cursor(listing)


def read_number_cursor(listing: str, cursor: str) -> int:
    """Return the position of a cursor in a listing by number."""
    text = read_cursor(listing, cursor)
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(NUMBER_MAX)) and int(text) <= NUMBER_MAX):
        raise _not_a_cursor(listing)
    return int(text)


def _not_a_cursor(listing: str) -> InvalidError:
    return InvalidError(f"cursor: this is not a cursor of the list of {listing}; begin again without one")


def check_limit(limit: int) -> None:
    """Raise ``InvalidError`` for a page that is empty or too large."""
    if not 1 <= limit <= PAGE_ITEMS_MAX:
        raise InvalidError(f"limit: write 1 to {PAGE_ITEMS_MAX} (PAGE_ITEMS_MAX)")


def check_after(after: int) -> None:
    """Raise ``InvalidError`` for an invalid entry number."""
    if not 0 <= after <= NUMBER_MAX:
        raise InvalidError(f"after: {after} is not an entry number; write 0 for all of them")
