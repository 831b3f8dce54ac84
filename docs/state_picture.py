"""Draws the states of a job as an SVG, from the transition table alone; the same table gives the same bytes.

The places of the states are chosen here. A transition that the drawing has no way for, or a way without a
transition, is an error, so that the picture never says less or more than the table.
"""

from __future__ import annotations

from koala.core.life.states import ENDED, TRANSITIONS, JobState

LEFT, TOP, WIDTH, HEIGHT = -44, 26, 1066, 514
BOX_WIDTH, BOX_HEIGHT = 104, 40
ROW_Y = 190
COLUMN_X = {
    JobState.WAITING: 120,
    JobState.PLACED: 290,
    JobState.CLAIMING: 460,
    JobState.STARTING: 630,
    JobState.RUNNING: 800,
}
CENTRE = {state: (x, ROW_Y) for state, x in COLUMN_X.items()} | {
    JobState.COLLECTING: (800, 112),
    JobState.UNWINDING: (800, 290),
    JobState.DONE: (970, ROW_Y),
    JobState.HELD: (250, 340),
    JobState.UNFOLDING: (500, 340),
    JobState.FAILED: (84, 425),
    JobState.CANCELLED: (630, 425),
    JobState.QUARANTINED: (480, 505),
}
NARROW = {JobState.DONE: 76, JobState.COLLECTING: 112, JobState.UNFOLDING: 110, JobState.QUARANTINED: 120}

# Ways that bend: the heights at which they run, above or below the row, and where they leave and enter.
_BENT: dict[tuple[JobState, JobState], tuple[int, int, int]] = {
    (JobState.PLACED, JobState.WAITING): (140, 0, 26),
    (JobState.CLAIMING, JobState.WAITING): (115, 0, 0),
    (JobState.STARTING, JobState.WAITING): (90, 0, -26),
    (JobState.STARTING, JobState.CLAIMING): (228, -18, 18),
    (JobState.PLACED, JobState.STARTING): (248, 0, 18),
}
# Which states a frame holds: one arrow from the frame stands for one from each.
FAILING = frozenset(COLUMN_X) | {JobState.COLLECTING}
ALONE = frozenset({(JobState.UNFOLDING, JobState.FAILED)})
LIVING = frozenset(TRANSITIONS) - ENDED - {JobState.QUARANTINED}

STYLE = """
  text { font-family: system-ui, 'DejaVu Sans', sans-serif; fill: #1f2937; }
  .name { font-size: 16px; text-anchor: middle; dominant-baseline: central; font-weight: 600; }
  .number { font-size: 14px; text-anchor: middle; dominant-baseline: central; fill: #374151; }
  .note { font-size: 14px; fill: #4b5563; }
  .box { fill: #e0f2f1; stroke: #00796b; stroke-width: 1.5; }
  .end { fill: #eceff1; stroke: #455a64; stroke-width: 1.5; }
  .frame { fill: none; stroke: #90a4ae; stroke-width: 1.2; stroke-dasharray: 6 4; }
  .way { fill: none; stroke: #37474f; stroke-width: 1.5; marker-end: url(#tip); }
  .plate { fill: #ffffff; }
"""


def numbers() -> dict[tuple[JobState, JobState], int]:
    """The transitions in the order of the table, counted from 1."""
    ways = [(state, target) for state, targets in TRANSITIONS.items() for target in targets]
    return {way: number for number, way in enumerate(ways, 1)}


def draw() -> str:
    """The whole picture as text."""
    numbered = numbers()
    _check_frames(numbered)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{LEFT} {TOP} {WIDTH} {HEIGHT}">',
        "<title>The states of a job and the ways between them</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"',
        ' orient="auto">',
        '<path d="M0 0L10 5L0 10z" fill="#37474f"/></marker></defs>',
        f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        '<rect class="frame" x="30" y="40" width="845" height="335" rx="14"/>',
        '<rect class="frame" x="48" y="72" width="812" height="188" rx="12"/>',
        '<path class="way" d="M-32 190H68"/><text class="note" x="-32" y="181">submit</text>',
    ]
    grouped: dict[JobState, list[int]] = {JobState.FAILED: [], JobState.CANCELLED: [], JobState.QUARANTINED: []}
    for (state, target), number in numbered.items():
        if target in grouped and state is not JobState.QUARANTINED and (state, target) not in ALONE:
            grouped[target].append(number)
        else:
            parts += _way(state, target, number)
    parts += _group_arrow(JobState.FAILED, "inner", 260, grouped[JobState.FAILED])
    parts += _group_arrow(JobState.CANCELLED, "outer", 375, grouped[JobState.CANCELLED])
    parts += _group_arrow(JobState.QUARANTINED, "outer", 375, grouped[JobState.QUARANTINED])
    parts += [line for state in CENTRE for line in _box(state)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _check_frames(numbered: dict[tuple[JobState, JobState], int]) -> None:
    """An arrow from a frame is true only if every state in it has that way, and no other has."""
    framed = ((JobState.FAILED, FAILING), (JobState.CANCELLED, LIVING), (JobState.QUARANTINED, LIVING))
    for target, frame in framed:
        sources = {state for state, to in numbered if to is target and (state, to) not in ALONE}
        sources -= {JobState.QUARANTINED}
        if sources != frame:
            raise ValueError(f"the frame of {target} does not fit the table: {sorted(sources ^ frame)}")


def _box(state: JobState) -> list[str]:
    x, y = CENTRE[state]
    width = NARROW.get(state, BOX_WIDTH)
    kind = "end" if state in ENDED else "box"
    corner = f'x="{x - width // 2}" y="{y - BOX_HEIGHT // 2}"'
    return [
        f'<rect class="{kind}" {corner} width="{width}" height="{BOX_HEIGHT}" rx="8"/>',
        f'<text class="name" x="{x}" y="{y}">{state}</text>',
    ]


def _way(state: JobState, target: JobState, number: int) -> list[str]:
    (x, y), (to_x, to_y) = CENTRE[state], CENTRE[target]
    half = BOX_WIDTH // 2
    if (state, target) in _BENT:
        lane_y, leave, enter = _BENT[state, target]
        edge = -BOX_HEIGHT // 2 if lane_y < ROW_Y else BOX_HEIGHT // 2
        from_x, end_x = x + leave, to_x + enter
        path = f"M{from_x} {y + edge}V{lane_y}H{end_x}V{to_y + edge}"
        return _labelled(path, (from_x + end_x) // 2, lane_y, number)
    if state is JobState.WAITING and target is JobState.HELD:
        return _labelled(f"M{x + 24} {y + BOX_HEIGHT // 2}V{to_y - 10}H{to_x - half}", x + 50, to_y - 10, number)
    if state is JobState.HELD and target is JobState.WAITING:
        return _labelled(f"M{x - half} {y + 10}H{to_x - 24}V{to_y + BOX_HEIGHT // 2}", to_x + 50, y + 10, number)
    if state is JobState.WAITING and target is JobState.UNFOLDING:
        return _labelled(f"M{x + 40} {y + BOX_HEIGHT // 2}V{to_y - 30}H{to_x}V{to_y - 20}", 330, to_y - 30, number)
    if state is JobState.UNFOLDING and target is JobState.HELD:
        return _labelled(f"M{x - 55} {y}H{to_x + half}", 375, y, number)
    if state is JobState.UNFOLDING and target is JobState.DONE:
        return _labelled(f"M{x + 55} {y}H{to_x}V{to_y + BOX_HEIGHT // 2}", 700, y, number)
    if state is JobState.UNFOLDING and target is JobState.FAILED:
        return _labelled(f"M{x - 30} {y + 20}V{y + 50}H{to_x + 40}V{to_y - 20}", 300, y + 50, number)
    if state is JobState.RUNNING and target is JobState.COLLECTING:
        return _labelled(f"M{x} {y - BOX_HEIGHT // 2}V{to_y + BOX_HEIGHT // 2}", x, (y + to_y) // 2, number)
    if state is JobState.COLLECTING and target is JobState.DONE:
        return _labelled(f"M{x + 56} {y}H{to_x}V{to_y - BOX_HEIGHT // 2}", 915, y, number)
    if state is JobState.COLLECTING and target is JobState.WAITING:
        return _labelled(f"M{x} {y - 20}V82H{to_x - 40}V{to_y - BOX_HEIGHT // 2}", 715, 82, number)
    if state is JobState.RUNNING and target is JobState.UNWINDING:
        return _labelled(f"M{x} {y + BOX_HEIGHT // 2}V{to_y - BOX_HEIGHT // 2}", x, (y + to_y) // 2, number)
    if state is JobState.UNWINDING and target is JobState.WAITING:
        return _labelled(f"M{x - half} {y}H{to_x}V{to_y + BOX_HEIGHT // 2}", (x + to_x) // 2, y, number)
    if state is JobState.QUARANTINED:
        edge = NARROW[state] // 2
        if target is JobState.WAITING:
            return _labelled(f"M{x - edge} {y}H8V{to_y + 15}H{to_x - half}", (x + 8) // 2, y, number)
        if target is JobState.CANCELLED:
            top, lane_y = y - BOX_HEIGHT // 2, y - 40
            return _labelled(f"M{x + 40} {top}V{lane_y}H{to_x}V{to_y + BOX_HEIGHT // 2}", x + 95, lane_y, number)
    if y == to_y and 0 < to_x - x <= 170:
        end_x = to_x - NARROW.get(target, BOX_WIDTH) // 2
        return _labelled(f"M{x + half} {y}H{end_x}", (x + half + end_x) // 2 - 5, y, number)
    raise ValueError(f"the drawing has no way from {state} to {target}; give it one in docs/state_picture.py")


def _group_arrow(target: JobState, frame: str, from_y: int, ways: list[int]) -> list[str]:
    x, y = CENTRE[target]
    counted = ", ".join(map(str, ways))
    note_x = x + NARROW.get(target, BOX_WIDTH) // 2 + 10
    return [
        f'<path class="way" d="M{x} {from_y}V{y - BOX_HEIGHT // 2}"/>',
        f'<text class="note" x="{note_x}" y="{y - 5}">from every state in the {frame} frame:</text>',
        f'<text class="note" x="{note_x}" y="{y + 14}">{counted}</text>',
    ]


def _labelled(path: str, x: int, y: int, number: int) -> list[str]:
    return [
        f'<path class="way" d="{path}"/>',
        f'<circle class="plate" cx="{x}" cy="{y}" r="10"/>',
        f'<text class="number" x="{x}" y="{y}">{number}</text>',
    ]
