"""What a job waits for before it is tried, as its text states it: other jobs, a time, a release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from koala.descriptions.errors import shown
from koala.descriptions.fields import DURATION_S_MAX, Description, duration_s
from koala.descriptions.yaml.problems import wrong
from koala.model.dependency import DEPENDENCIES_MAX, Condition, Dependency
from koala.model.job_array import ARRAY_ADVICE, ARRAY_INDEX_MAX, ArrayError, read_array
from koala.model.request import TIME_S_MAX

MOMENT_ADVICE = (
    "write a time with its zone (2030-01-31T08:00:00Z, 2030-01-31T08:00+01:00), how long after the submission "
    "(now+2h), or seconds since 1970 (UTC)"
)
_NOW = "now"
# The longest text that is read as a time.
_MOMENT_CHARACTERS_MAX = 40
_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]{1,6})?))?"
    r"(?:[zZ]|([+-])([0-9]{2}):?([0-9]{2}))"
)
_DAY_S = 86_400
# Days before each month in a year that is no leap year, and before 1970 in the modern calendar.
_DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)
_DAYS_TO_1970 = 719_162


class Moment(NamedTuple):
    """A time: in seconds since 1970, or as a delay after the submission."""

    at: float | None = None
    in_s: float | None = None


def moment(text: str) -> Moment | None:
    """Return a time from its text; None if it is none."""
    text = text.strip()
    if len(text) > _MOMENT_CHARACTERS_MAX:
        return None
    if text.startswith(_NOW):
        rest = text.removeprefix(_NOW).strip()
        if not rest:
            return Moment(in_s=0.0)
        seconds = duration_s(rest[1:]) if rest.startswith("+") else None
        return None if seconds is None or not 0 <= seconds <= DURATION_S_MAX else Moment(in_s=seconds)
    seconds = _calendar_s(text)
    return None if seconds is None or not 0 <= seconds <= TIME_S_MAX else Moment(at=seconds)


def _calendar_s(text: str) -> float | None:
    """Return a day and time with a zone in seconds since 1970; None if there is no such time."""
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute = (int(part) for part in found.groups()[:5])
    second = float(found[6] or 0)
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= _days_in(year, month)):
        return None
    if hour > 23 or minute > 59 or second >= 60:
        return None
    zone_hour, zone_minute = int(found[8] or 0), int(found[9] or 0)
    if zone_hour > 23 or zone_minute > 59:
        return None
    zone_s = (zone_hour * 3600 + zone_minute * 60) * (-1 if found[7] == "-" else 1)
    days = _days_before_year(year) + _days_before_month(year, month) + day - 1 - _DAYS_TO_1970
    return days * _DAY_S + hour * 3600 + minute * 60 + second - zone_s


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_before_year(year: int) -> int:
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400


def _days_before_month(year: int, month: int) -> int:
    return _DAYS_BEFORE[month - 1] + (month > 2 and _is_leap(year))


def _days_in(year: int, month: int) -> int:
    return _DAYS_BEFORE[month] - _DAYS_BEFORE[month - 1] + (month == 2 and _is_leap(year))


def _read_moment(value: Any) -> Moment:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= TIME_S_MAX:
            return Moment(at=float(value))
        raise wrong(f"{value:g} is not a time", MOMENT_ADVICE)
    if not isinstance(value, str):
        raise wrong("this is not a time", MOMENT_ADVICE)
    found = moment(value)
    if found is None:
        raise wrong(f"{shown(value)} is not a time", MOMENT_ADVICE)
    return found


MomentText = Annotated[
    Moment,
    BeforeValidator(
        _read_moment,
        json_schema_input_type=Annotated[float, Field(ge=0, le=TIME_S_MAX)]
        | Annotated[str, Field(pattern=r"^\s*(now|[0-9]{4}-)", max_length=_MOMENT_CHARACTERS_MAX)],
    ),
]


def _read_array(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # an array of one element
    if not isinstance(value, str):
        raise wrong("this is no array", ARRAY_ADVICE)
    try:
        return str(read_array(value))
    except ArrayError as error:
        raise wrong(str(error), error.advice) from None


_INDICES = "[0-9]+(-[0-9]+(:[0-9]+)?)?"
ArrayText = Annotated[
    str,
    BeforeValidator(
        _read_array,
        json_schema_input_type=Annotated[int, Field(ge=0, le=ARRAY_INDEX_MAX)]
        | Annotated[str, Field(pattern=rf"^\s*{_INDICES}(\s*,\s*{_INDICES})*\s*(%\s*[0-9]+)?\s*$")],
    ),
]


class JobNumber(NamedTuple):
    """A job by its number, or an element of an array by its index."""

    job: int
    element: int | None = None


_NUMBER_ADVICE = "write the number of a job, such as 17, or of an element of an array, such as 17_3"


def _read_number(value: Any) -> JobNumber:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= NUMBER_MAX:
        return JobNumber(value)
    number = job_number(value) if isinstance(value, str) else None
    if number is None or number.element is None:
        raise wrong("this is not the number of a job", _NUMBER_ADVICE)
    return number


def job_number(text: str) -> JobNumber | None:
    """Return a job, or an element of an array, from its text: 17 or 17_3. None if the text is no job number."""
    found = re.fullmatch(r"([0-9]{1,15})(?:_([0-9]{1,10}))?", text, re.ASCII)
    if found is None or int(found[1]) < 1 or int(found[2] or 0) > ARRAY_INDEX_MAX:
        return None
    return JobNumber(int(found[1]), None if found[2] is None else int(found[2]))


# No job has a larger number.
NUMBER_MAX = 2**53
JobNumbers = Annotated[
    tuple[
        Annotated[
            JobNumber,
            BeforeValidator(
                _read_number,
                json_schema_input_type=Annotated[int, Field(ge=1, le=NUMBER_MAX)]
                | Annotated[str, Field(pattern=r"^[0-9]{1,15}_[0-9]{1,10}$")],
            ),
        ],
        ...,
    ],
    Field(max_length=DEPENDENCIES_MAX),
]


class AfterText(Description):
    """The jobs that a job waits for before it is tried, by their numbers; 17_3 is element 3 of
    array 17, and 17 all of its elements. Where what it waits for can never come, it
    ends as cancelled, and says why."""

    done: JobNumbers = Field(default=(), description="jobs that must be done: every component returned success")
    ended: JobNumbers = Field(default=(), description="jobs that must have ended, in whatever way")
    started: JobNumbers = Field(default=(), description="jobs that must have started")
    failed: JobNumbers = Field(default=(), description="jobs that must have failed")

    @model_validator(mode="after")
    def _can_be_met(self) -> AfterText:
        for place, problem in both_ends_of_numbers(self.done, self.failed):
            raise wrong(*problem, "failed", place)
        return self


def both_ends_of_numbers(done: Iterable[Any], failed: Iterable[Any]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the places of failure conditions on a number that must also be done, with what is wrong there."""
    both = {*done}
    for place, number in enumerate(failed):
        if isinstance(number, JobNumber) and number in both:
            element = "" if number.element is None else f"_{number.element}"
            yield place, both_ends(f"job {number.job}{element}")


def both_ends(job: str) -> tuple[str, str]:
    """Return what is wrong with waiting for both ends of a job, and what to write."""
    return (
        f"it waits for {job} to be done and to fail, and {job} cannot do both",
        "name it under one of them, or under ended, which is either",
    )


def dependencies(after: AfterText) -> tuple[Dependency, ...]:
    """Return the dependencies of the text, in the order of the conditions, without repetitions."""
    found = [
        Dependency(job=number.job, condition=condition, index=number.element)
        for condition in Condition
        for number in getattr(after, str(condition))
    ]
    return tuple(dict.fromkeys(found))


def after_values(after: tuple[Dependency, ...]) -> dict[str, list[int | str]]:
    """Return values that ``AfterText`` reads as these dependencies."""
    found: dict[str, list[int | str]] = {}
    for each in after:
        number = each.job if each.index is None else f"{each.job}_{each.index}"
        found.setdefault(str(each.condition), []).append(number)
    return found


def moment_value(at: float | None, in_s: float | None) -> str | float | None:
    """Return a value that is read as this time; the later one if there are both."""
    if at is not None:
        return int(at) if at == int(at) else at
    if in_s is not None:
        return f"{_NOW}+{int(in_s) if in_s == int(in_s) else in_s}"
    return None
