"""The layout of a site's file area: the names of its directories, of replicas and of the copies for jobs.

Names are data: any text maps to one safe path, and no text leads out of the area. Local and remote areas have the
same layout, so that a component's links lead to the same paths. Nothing is read or written here.
"""

from __future__ import annotations

import hashlib
import uuid
from urllib.parse import quote, unquote_to_bytes

from koala.model.request import FileName

# An encoded name longer than this is cut and gets a digest of the whole name; file systems allow 255.
ENCODED_CHARACTERS_MAX = 120
# The directories of an area. ``DOUBTS`` holds marks of replicas in doubt. A file without a name yet begins with
# ``INCOMING``: no name that a user may register begins so, because none contains NUL.
REPLICAS, COPIES, TRASH, HOLDERS, DOUBTS = "replicas", "copies", "trash", "holders", "doubts"
INCOMING = "\0incoming."


def encode(text: str) -> str:
    """Return a file name for any text: different texts have different names, and no name is special to a file
    system."""
    data = text.encode("utf-8", "surrogatepass")
    quoted = "=" + quote(data, safe="")
    if len(quoted) <= ENCODED_CHARACTERS_MAX:
        return quoted
    # The sign + is never in the quoted form, so a cut name cannot equal a short one.
    return f"{quoted[:ENCODED_CHARACTERS_MAX]}+{hashlib.sha256(data).hexdigest()}"


def decode(encoded: str) -> str | None:
    """Return the encoded text; None for a name that was cut or does not come from ``encode``."""
    if not encoded.startswith("=") or "+" in encoded:
        return None
    try:
        return unquote_to_bytes(encoded[1:]).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def copy_name(file: FileName, chunk: tuple[int, int] | None, checksum: str | None) -> str:
    """Return the name of the directory for a copy of a file, or of a chunk; it depends on the content."""
    piece = "whole" if chunk is None else f"{chunk[0]}+{chunk[1]}"
    # One digest over all three, because the name alone may already be as long as a file system allows.
    return hashlib.sha256("\0".join((encode(file), piece, checksum or "")).encode()).hexdigest()


def replica_path(file: FileName) -> str:
    """Return the path of a file's replica in the area, as the links of components name it."""
    return f"{REPLICAS}/{encode(file)}"


def fresh_name(file: FileName) -> str:
    """Return a unique name for one attempt to make a replica, before it is complete. The sign @ is in no encoded
    text, so the attempts at one file can be distinguished from those at others."""
    return f".{encode(file)}@{uuid.uuid4().hex}"


def copy_path(name: str) -> str:
    """Return the path of a copy's finished file in the area, as the links of components name it."""
    return f"{COPIES}/{name}/data"
