"""The layout of a site's file area: the names of its directories, of replicas and of the copies for jobs.

Names are data: any text maps to one safe path and no text leads out. Local and remote areas have the same layout, so
that a component's links lead to the same paths. Nothing is read or written here.
"""

from __future__ import annotations

import hashlib
import uuid
from urllib.parse import quote, unquote_to_bytes

from koala.model.request import FileName

# An encoded name longer than this is cut, and a digest of all of it tells it from others; file systems allow 255.
ENCODED_CHARACTERS_MAX = 120
# What is in an area; where something is in doubt, a mark says so. What never got its name begins with ``INCOMING``:
# no file that a user may register has such a name, since NUL is in none.
REPLICAS, COPIES, TRASH, HOLDERS, DOUBTS = "replicas", "copies", "trash", "holders", "doubts"
INCOMING = "\0incoming."


def encode(text: str) -> str:
    """A file name for any text: different texts have different ones, and none is special to a file system."""
    data = text.encode("utf-8", "surrogatepass")
    quoted = "=" + quote(data, safe="")
    if len(quoted) <= ENCODED_CHARACTERS_MAX:
        return quoted
    # The sign + is never in the quoted form, so a cut name is never taken for a short one.
    return f"{quoted[:ENCODED_CHARACTERS_MAX]}+{hashlib.sha256(data).hexdigest()}"


def decode(encoded: str) -> str | None:
    """The text again, or None for a name that was cut or does not come from ``encode``."""
    if not encoded.startswith("=") or "+" in encoded:
        return None
    try:
        return unquote_to_bytes(encoded[1:]).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def copy_name(file: FileName, chunk: tuple[int, int] | None, checksum: str | None) -> str:
    """The directory of a copy of a file, or of a chunk of it; another content has another one."""
    piece = "whole" if chunk is None else f"{chunk[0]}+{chunk[1]}"
    # One digest over all three, as the name alone may already be as long as a file system allows.
    return hashlib.sha256("\0".join((encode(file), piece, checksum or "")).encode()).hexdigest()


def replica_path(file: FileName) -> str:
    """Where the replica of a file is, relative to the area, as a component's links name it."""
    return f"{REPLICAS}/{encode(file)}"


def fresh_name(file: FileName) -> str:
    """The name of one attempt to make a replica, before it is whole: no two share one. The sign @ is in no encoded
    text, so that all attempts at one file can be told from those at others."""
    return f".{encode(file)}@{uuid.uuid4().hex}"


def copy_path(name: str) -> str:
    """Where the finished file of a copy is, relative to the area, as a component's links name it."""
    return f"{COPIES}/{name}/data"
