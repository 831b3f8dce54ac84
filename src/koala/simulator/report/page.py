"""The page of a simulation: one HTML file with charts of use, queue and waits, and a Gantt chart of every job.

The page fetches nothing: it contains its style, script and data. The same run gives the same page, byte for byte.
"""

from __future__ import annotations

import json
from importlib import resources

from jinja2 import Environment, StrictUndefined

from koala.simulator.report.page_data import RunPicture, longest_waits, packed, wait_classes, waits_of
from koala.version import __version__

_TEMPLATE, _STYLE, _SCRIPT = "page.html.j2", "page.css", "page.js"


def page(picture: RunPicture) -> str:
    """Return the whole page."""
    folder = resources.files("koala.simulator.report")
    template, style, script = ((folder / name).read_text(encoding="utf-8") for name in (_TEMPLATE, _STYLE, _SCRIPT))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        picture=picture,
        waits=wait_classes(waits_of(picture)),
        longest=longest_waits(picture),
        duration=duration,
        style=style,
        script=script,
        data=_in_script(packed(picture)),
        version=__version__,
    )


def _in_script(value: object) -> str:
    """Return JSON that is safe inside a script element, with any names in it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def duration(seconds: float | None) -> str:
    """Return a time in its two main units: 12.3 s, 4 min 05 s, 3 h 20 min, 2 d 04 h."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit_s, unit, part_s, part in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit_s:
            return f"{whole // unit_s} {unit} {whole % unit_s // part_s:02d} {part}"
    return f"{whole} s"
