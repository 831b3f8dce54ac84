"""Draws the floors of the code as an SVG, from the contract that import-linter holds; the same contract gives the
same bytes. What each room is for is said here; a room without a word, or a word without a room, is an error."""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
WIDTH, FLOOR_HEIGHT, MARGIN, GAP = 1000, 66, 16, 12

ROOMS = {
    "cli": "the koala command, a file or folder a verb",
    "study": "the frame of studies: runs, statistics, verdicts, report; replay",
    "simulator": "driver one: virtual time, simulated world",
    "daemon": "driver two: wall time, real sites, API",
    "lab": "real batch systems on one machine",
    "words": "facts, standings and expectations, in words for people",
    "core": "decides: events in, commands out",
    "store": "remembers: one database",
    "files": "replicas, and transfers between sites",
    "policies": "where components go: functions over integers",
    "descriptions": "the only parsers of user text",
    "sites": "batch systems, embedded site",
    "runners": "how components start",
    "client": "the typed client",
    "mapping": "tasks onto machines",
    "model": "requests, grids, messages, links: frozen values",
    "version": "",
}
STYLE = """
  text { font-family: system-ui, 'DejaVu Sans', sans-serif; fill: #1f2937; text-anchor: middle; }
  .name { font-size: 17px; font-weight: 600; }
  .what { font-size: 13px; fill: #4b5563; }
  .room { fill: #e0f2f1; stroke: #00796b; stroke-width: 1.5; }
  .pure { fill: #fff8e1; stroke: #b26a00; stroke-width: 1.5; }
"""
# Rooms without clock, files, network and threads.
PURE = {"words", "core", "policies", "descriptions", "runners", "model"}


def floors() -> list[list[str]]:
    """The rooms of each floor, the top one first, as the contract has them."""
    contracts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "floors"]
    named = [[room.strip(" ()") for room in layer.split("|")] for layer in layers]
    missing = {room for floor in named for room in floor} ^ set(ROOMS)
    if missing:
        raise ValueError(f"rooms and words differ: {', '.join(sorted(missing))}")
    return [floor for floor in named if floor != ["version"]]


def draw() -> str:
    """The whole picture as text."""
    rows = floors()
    height = len(rows) * (FLOOR_HEIGHT + GAP) + 2 * MARGIN - GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        "<title>The floors of the code: a room imports only from the floors below it</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for row, rooms in enumerate(rows):
        top = MARGIN + row * (FLOOR_HEIGHT + GAP)
        wide = (WIDTH - 2 * MARGIN - (len(rooms) - 1) * GAP) / len(rooms)
        for column, room in enumerate(rooms):
            left = MARGIN + column * (wide + GAP)
            middle = left + wide / 2
            kind = "pure" if room in PURE else "room"
            parts += [
                f'<rect class="{kind}" x="{left:g}" y="{top}" width="{wide:g}" height="{FLOOR_HEIGHT}" rx="6"/>',
                f'<text class="name" x="{middle:g}" y="{top + 28}">{escape(room)}</text>',
                f'<text class="what" x="{middle:g}" y="{top + 50}">{escape(ROOMS[room])}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])
