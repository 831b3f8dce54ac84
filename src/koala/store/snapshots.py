"""A snapshot in pieces of bounded size, each kept once by its content.

A snapshot is a short header and sections, each a list of encoded values in order. The values of a section are
gathered into pieces. Where a piece ends is decided by the value there and not by how many came before, so that a
changed, new or gone value changes its own piece and no other: the next snapshot writes that one alone.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

# So many values are in a piece on average, and so many characters at most: a longer value is in several.
PIECE_VALUES_MEAN = 64
PIECE_CHARACTERS_MAX = 262_144
_END = "\n"  # after each value; JSON on one line has none inside


class SnapshotParts(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot in JSON, as its writer has it."""

    header: bytes
    sections: Mapping[str, Sequence[bytes]] = {}


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """The bodies of all pieces by key, and the keys of each section in order."""

    bodies: dict[str, str]
    sections: dict[str, list[str]]


def in_pieces(sections: Mapping[str, Sequence[bytes]]) -> Pieces:
    """The sections as they are kept."""
    bodies: dict[str, str] = {}
    keys: dict[str, list[str]] = {}
    for name, values in sections.items():
        keys[name] = []
        for body in _cut(values):
            key = hashlib.sha256(body.encode()).hexdigest()
            bodies[key] = body
            keys[name].append(key)
    return Pieces(bodies=bodies, sections=keys)


def _cut(values: Iterable[bytes]) -> Iterator[str]:
    gathered: list[str] = []
    size = 0
    for value in values:
        text = value.decode() + _END
        if size + len(text) > PIECE_CHARACTERS_MAX and gathered:
            yield "".join(gathered)
            gathered, size = [], 0
        while len(text) > PIECE_CHARACTERS_MAX:
            yield text[:PIECE_CHARACTERS_MAX]
            text = text[PIECE_CHARACTERS_MAX:]
        gathered.append(text)
        size += len(text)
        if zlib.crc32(value) % PIECE_VALUES_MEAN == 0:
            yield "".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield "".join(gathered)


def joined(pieces: Pieces) -> dict[str, list[bytes]]:
    """The sections as they were. Raises ``ValueError`` where a piece is missing."""
    sections: dict[str, list[bytes]] = {}
    for name, keys in pieces.sections.items():
        missing = [key for key in keys if key not in pieces.bodies]
        if missing:
            raise ValueError(f"the piece {missing[0]} of the snapshot is missing")
        text = "".join([pieces.bodies[key] for key in keys])
        sections[name] = [value.encode() for value in text.split(_END)[:-1]]
    return sections
