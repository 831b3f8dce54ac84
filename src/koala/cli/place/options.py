"""The small languages of ``koala place``'s options: sites with numbers, component sizes, totals and their splits.

Each parser names the piece that it could not parse and shows the expected form.
"""

from __future__ import annotations

import msgspec

from koala.cli.errors import UserError
from koala.model.grid import SITES_MAX
from koala.model.request import (
    BANDWIDTH_MBIT_S_MAX,
    COMPONENTS_MAX,
    PROCESSORS_MAX,
    Communication,
    Component,
    Flexibility,
    InvalidRequestError,
    Pattern,
    Request,
)

_IDLE_FORM = "write SITE=PROCESSORS, separated by commas, like C1=18,C2=15"
_LOAD_FORM = "write LINK=MBIT_S, separated by commas, like C1=900,C2=450.5"
_COMPONENTS_FORM = "write the processors of each component, separated by commas, like 8,8,8 or 8@C1,8"
_SPLITS_FORM = "write the parts of each split joined by +, the splits separated by commas, like 18+6,12+12"


def parse_idle(text: str) -> dict[str, int]:
    """Parse ``C1=18,C2=15`` into processors by site, in the order written."""
    idle: dict[str, int] = {}
    for piece in _pieces(text, "--idle", _IDLE_FORM):
        name, equals, count = piece.rpartition("=")
        name = name.strip()
        if not equals or not name:
            raise UserError(f"--idle: {piece!r} does not name a site; {_IDLE_FORM}")
        if name in idle:
            raise UserError(f"--idle: the site {name!r} is given twice; give it once")
        idle[name] = _number(count, 0, f"--idle: {piece!r}", _IDLE_FORM)
    if len(idle) > SITES_MAX:
        raise UserError(f"--idle: more than {SITES_MAX} sites (SITES_MAX)")
    return idle


def parse_load(text: str) -> dict[str, float]:
    """Parse ``C1=900,C2=450.5`` into the use by link, in Mbit/s, in the order written."""
    load: dict[str, float] = {}
    for piece in _pieces(text, "--load", _LOAD_FORM):
        name, equals, amount = piece.rpartition("=")
        name = name.strip()
        if not equals or not name:
            raise UserError(f"--load: {piece!r} does not name a link; {_LOAD_FORM}")
        if name in load:
            raise UserError(f"--load: the link {name!r} is given twice; give it once")
        try:
            mbit_s = msgspec.json.decode(amount.strip().encode(), type=float)
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise UserError(f"--load: {amount.strip()!r} is not a number; {_LOAD_FORM}") from None
        load[name] = _bandwidth(mbit_s, f"--load: {piece!r}")
    return load


def with_communication(
    request: Request, *, home: str | None, bisection: float | None, pattern: str | None
) -> Request:
    """Return the request with the values of these options; without any it is unchanged."""
    if home is not None:
        request = msgspec.structs.replace(request, home=home)
    if bisection is None and pattern is None:
        return request
    given = request.communication
    if bisection is None and given is None and pattern != Pattern.NONE:
        raise UserError("--pattern: how much is sent is not known; give --bisection too")
    chosen = Pattern(pattern) if pattern is not None else Pattern.ALL_TO_ALL if given is None else given.pattern
    if bisection is not None:
        bisection = _bandwidth(bisection, "--bisection")
        before = Communication(pattern=Pattern.NONE) if given is None else given
        known = msgspec.structs.replace(before, pattern=chosen, bisection_mbit_s=bisection, per_processor_mbit_s=None)
    elif given is None:
        known = Communication(pattern=chosen)
    else:
        known = msgspec.structs.replace(given, pattern=chosen)
    return msgspec.structs.replace(request, communication=known)


def _bandwidth(mbit_s: float, what: str) -> float:
    if not 0 <= mbit_s <= BANDWIDTH_MBIT_S_MAX:
        raise UserError(f"{what}: {mbit_s:g} is not a bandwidth; write 0 to {BANDWIDTH_MBIT_S_MAX} Mbit/s")
    return mbit_s


def parse_components(text: str) -> tuple[Component, ...]:
    """Parse ``8@C1,8`` into components, the first of them on the site C1."""
    components = []
    for piece in _pieces(text, "--components", _COMPONENTS_FORM):
        count, at, site = piece.partition("@")
        if at and not site.strip():
            raise UserError(f"--components: {piece!r} names no site after the @; {_COMPONENTS_FORM}")
        processors = _number(count, 1, f"--components: {piece!r}", _COMPONENTS_FORM)
        components.append(Component(processors=processors, site=site.strip() if at else None))
    if len(components) > COMPONENTS_MAX:
        raise UserError(f"--components: more than {COMPONENTS_MAX} components (COMPONENTS_MAX)")
    return tuple(components)


def parse_splits(text: str) -> tuple[tuple[int, ...], ...]:
    """Parse ``18+6,12+12`` into the allowed divisions, the preferred one first."""
    return tuple(
        tuple(_number(part, 1, f"--splits: {split!r}", _SPLITS_FORM) for part in split.split("+"))
        for split in _pieces(text, "--splits", _SPLITS_FORM)
    )


def request_from_options(
    components: str | None,
    flexible: int | None,
    component_min: int | None,
    components_max: int | None,
    splits: str | None,
) -> Request:
    """Return the request that the options describe."""
    if (components is None) == (flexible is None):
        raise UserError("give a JOB file, or --components 8,8,8, or --flexible 24; one of the three")
    if flexible is None and (component_min is not None or components_max is not None or splits is not None):
        raise UserError(
            "--component-min, --components-max and --splits say how --flexible may be divided; give it too"
        )
    if splits is not None and (component_min is not None or components_max is not None):
        raise UserError("--splits lists the divisions allowed; leave out --component-min and --components-max")
    try:
        if components is not None:
            return Request(components=parse_components(components))
        assert flexible is not None
        bounds = Flexibility(
            component_min=1 if component_min is None else component_min,
            components_max=components_max,
            splits=() if splits is None else parse_splits(splits),
        )
        return Request(components=(Component(processors=flexible),), flexible=bounds)
    except InvalidRequestError as error:
        option = {"processors": "flexible"}.get(error.field, error.field).replace("_", "-")
        raise UserError(f"--{option}: {error.message}") from None


def _pieces(text: str, option: str, form: str) -> list[str]:
    pieces = [piece.strip() for piece in text.split(",")]
    if not all(pieces):
        raise UserError(f"{option}: there is an empty piece in {text!r}; {form}")
    return pieces


def _number(text: str, least: int, what: str, form: str) -> int:
    try:
        # The same strict parsing as for numbers in JSON: no signs but minus, no underscores, no blanks inside.
        number = msgspec.json.decode(text.strip().encode(), type=int)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise UserError(f"{what}: {text.strip()!r} is not a whole number; {form}") from None
    if not least <= number <= PROCESSORS_MAX:
        raise UserError(f"{what}: {number} is not between {least} and {PROCESSORS_MAX}; {form}")
    return number
