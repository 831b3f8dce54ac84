"""The dashboard's templates and static files: renders pages, and serves the files that they refer to.

Every value in a template is escaped, so that a job's name is never markup. Pages have no inline script and no inline
style, so they work under the strictest content security policy.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Any

import msgspec
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FunctionLoader, StrictUndefined

import koala
from koala.daemon.dashboard import words
from koala.daemon.dashboard.charts import AREA_HEIGHT, AREA_WIDTH
from koala.daemon.dashboard.glossary import STATE_MEANING, TERMS
from koala.daemon.dashboard.network import NODE_RADIUS, WIDTH
from koala.daemon.dashboard.timeline import PHASE_MEANING, told
from koala.model.api import WHY_CHARACTERS_MAX
from koala.model.job_array import element_tail
from koala.model.network import bandwidth_text, latency_text
from koala.model.nodes import gpu_time_text, memory_text

_HERE = files("koala.daemon.dashboard")
_TITLES = {403: "Not allowed", 404: "Not found", 422: "That makes no sense", 429: "Too much at once", 503: "Not now"}
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class StaticFile(msgspec.Struct, frozen=True):
    """A file that pages refer to. ``mark`` changes with its content."""

    content: bytes
    media_type: str
    mark: str


def _read_static() -> dict[str, StaticFile]:
    found = {}
    for each in _HERE.joinpath("static").iterdir():
        suffix = "." + each.name.rsplit(".", 1)[-1]
        if suffix in _TYPES:
            content = each.read_bytes()
            found[each.name] = StaticFile(content, _TYPES[suffix], hashlib.sha256(content).hexdigest()[:16])
    return found


STATIC = _read_static()


def _source(name: str) -> str | None:
    template = _HERE.joinpath("templates", name)
    return template.read_text(encoding="utf-8") if template.is_file() else None


def _static_url(name: str) -> str:
    return f"/static/{name}?v={STATIC[name].mark}"


def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        amount=words.amount,
        bandwidth=bandwidth_text,
        latency=latency_text,
        clock_time=words.clock_time,
        expected=words.expected,
        condition=words.condition,
        duration=words.duration,
        gpu_time=gpu_time_text,
        memory=memory_text,
        machine_moment=words.machine_moment,
        moment=words.moment,
        places=words.places,
        planned=words.planned,
        processor_time=words.processor_time,
        shortened=words.shortened,
        told=told,
        with_its_time=words.with_its_time,
    )
    environment.globals.update(
        area=(AREA_WIDTH, AREA_HEIGHT),
        chosen_by=words.CHOSEN_BY,
        condition_meaning=words.CONDITION_MEANING,
        counted=words.counted,
        element_tail=element_tail,
        known_from=words.KNOWN_FROM,
        measured_by=words.MEASURED_BY,
        network_box=WIDTH,
        node_radius=NODE_RADIUS,
        phases=PHASE_MEANING,
        reason_max=WHY_CHARACTERS_MAX,
        state_meaning=STATE_MEANING,
        static_url=_static_url,
        terms=TERMS,
        version=koala.__version__,
    )
    return environment


_ENVIRONMENT = _environment()


def render(template: str, **context: Any) -> str:
    """Return the text of a page."""
    return _ENVIRONMENT.get_template(template).render(**context)


def page(template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Return a page as an answer that no cache keeps."""
    return HTMLResponse(render(template, **context), status_code=status, headers={"Cache-Control": "no-store"})


def error_page(status: int, message: str) -> HTMLResponse:
    """Return the page of an error, for a person."""
    return page("error.html", status=status, title=_TITLES.get(status, "That did not work"), message=message)
