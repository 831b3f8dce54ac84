"""The common values of descriptions: names, texts, counts, durations and sizes, and how they are read.

The functions serve every format; the annotated types carry them into the pydantic models of the YAML files.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from koala.descriptions.errors import CONTROL_ADVICE, control_problem, shown
from koala.descriptions.yaml.problems import nearest, text_wanted, wrong
from koala.model.request import (
    BANDWIDTH_MBIT_S_MAX,
    LICENSE_COUNT_MAX,
    LICENSES_MAX,
    PROCESSORS_MAX,
    TEXT_CHARACTERS_MAX,
)
from koala.model.request_size import FILE_NAME_CHARACTERS_MAX, JOB_NAME_CHARACTERS_MAX, TRIES_MAX

# The identifier of the draft of JSON Schema that pydantic writes.
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
NAME_CHARACTERS_MAX = 255
STUDY_LABEL_CHARACTERS_MAX = 40
# A policy may have parameters behind its name, such as B3(chunk=0.85).
POLICY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*(\([A-Za-z0-9._=, -]*\))?$"
# The longest time that is read, about 31 years: a larger number is a mistake in the unit.
DURATION_S_MAX = 1e9
# The largest file that is read, an exabyte.
SIZE_BYTES_MAX = 10**18

DURATION_ADVICE = 'write seconds (900), a number with a unit (15m, 2h, 1h30m, 1d) or "HH:MM:SS"'
NOT_ABOVE_ZERO_ADVICE = "write more than 0"
MEMORY_ADVICE = "write a size such as 512M, 16G (2^30 bytes each, as in Slurm), 16 GiB or 16 GB (10^9 bytes)"
SIZE_ADVICE = "write a size such as 500 MB, 4 GB (10^9 bytes) or 4 GiB (2^30 bytes)"

_UNIT_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:s|min|m|h|d))+")
_DURATION_PART = re.compile(r"(?<![0-9.])([0-9]+(?:\.[0-9]+)?)(s|min|m|h|d)")
_CLOCK = re.compile(r"([0-9]{1,6}):([0-5][0-9]):([0-5][0-9])")
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
# The three forms as one pattern, for the JSON schemas.
DURATION_PATTERN = rf"^\s*({_SECONDS.pattern}|{_DURATION.pattern}|{_CLOCK.pattern})\s*$"
_UNIT_BYTES = {"B": 1} | {
    prefix + suffix: base**power
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate(("k" if suffix == "B" else "K", "M", "G", "T", "P"), start=1)
}
_MEMORY = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?) ?([KkMGTP])")
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?) ?([A-Za-z]+)")


def is_name(text: str, pattern: str = NAME_PATTERN) -> bool:
    """Return True if the text can be the name of a site, or of anything else with the pattern."""
    return len(text) <= NAME_CHARACTERS_MAX and re.fullmatch(pattern.strip("^$"), text) is not None


def duration_s(text: str) -> float | None:
    """Return a duration in seconds from its text; None if it is not a duration."""
    text = text.strip()
    if len(text) > 40:
        return None
    clock = _CLOCK.fullmatch(text)
    if clock:
        return float(int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3]))
    if _DURATION.fullmatch(text):
        # Fractions keep 0.1m + 0.2m exact until the one rounding at the end.
        return float(sum(Fraction(number) * _UNIT_S[unit] for number, unit in _DURATION_PART.findall(text)))
    return float(text) if _SECONDS.fullmatch(text) else None


def size_bytes(text: str) -> int | None:
    """Return a size in bytes from its text; None if it is not a size or not a whole number of bytes."""
    found = _SIZE.fullmatch(text.strip())
    if not found or found[2] not in _UNIT_BYTES:
        return None
    size = Fraction(found[1]) * _UNIT_BYTES[found[2]]
    return int(size) if size.denominator == 1 else None


def _read_duration(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds: float | None = float(value)
    elif isinstance(value, str):
        seconds = duration_s(value)
    else:
        raise wrong("this is not a duration", DURATION_ADVICE)
    if seconds is None:
        raise wrong(f"{shown(value)} is not a duration", DURATION_ADVICE)
    problem = duration_problem(seconds)
    if problem is not None:
        raise wrong(*problem)
    return seconds


def duration_problem(seconds: float) -> tuple[str, str] | None:
    """Return what is wrong with a time as a walltime, and what to write instead; None if it is valid."""
    if seconds > DURATION_S_MAX:
        return f"{seconds:.10g} seconds are too long", f"write at most {DURATION_S_MAX:.10g} seconds, or leave it out"
    # The comparison is this way round so that not-a-number is refused too.
    if not seconds > 0:
        return f"{seconds:g} seconds are too short", f"{NOT_ABOVE_ZERO_ADVICE}; for no limit, leave it out"
    return None


def variable_problem(name: str) -> tuple[str, str] | None:
    """Return what is wrong with the name of an environment variable, and what to write; None if it is valid."""
    if not name:
        return "the variable's name is empty", "write the name of the variable, such as OMP_NUM_THREADS"
    for sign, word in (("=", "an equals sign"), ("\0", "NUL")):
        if sign in name:
            return f"the variable's name {shown(name)} holds {word}", f"write the name alone, without {word}"
    return None


def _read_variable(name: str) -> str:
    problem = variable_problem(name)
    if problem is not None:
        raise wrong(*problem)
    return name


def _read_label(name: str) -> str:
    problem = control_problem(name)
    if problem is not None:
        raise wrong(problem, CONTROL_ADVICE)
    return name


def _read_size(value: Any) -> int:
    if not isinstance(value, str):
        raise wrong("a size needs its unit", SIZE_ADVICE + "; or 'size_bytes' with a whole number")
    size = size_bytes(value)
    if size is None:
        raise wrong(f"{shown(value)} is not a size", SIZE_ADVICE)
    return size


def memory_bytes(text: str) -> int | None:
    """Return a size of memory in bytes, None if it is not one.

    It is a size, or has a letter alone for a binary unit (16G is 16 GiB, as in Slurm).
    """
    found = _MEMORY.fullmatch(text.strip())
    if found:
        size = Fraction(found[1]) * 1024 ** ("KMGTP".index(found[2].upper()) + 1)
        return int(size) if size.denominator == 1 else None
    return size_bytes(text)


def memory_value(size: int) -> str:
    """Return text that ``memory_bytes`` reads as this size."""
    for power, unit in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return f"{size} B"


def _read_memory(value: Any) -> int:
    if not isinstance(value, str):
        raise wrong("a size of memory needs its unit", MEMORY_ADVICE)
    size = memory_bytes(value)
    if size is None or size > SIZE_BYTES_MAX:
        raise wrong(f"{shown(value)} is not a size of memory", MEMORY_ADVICE)
    return size


def _read_text(value: Any) -> Any:
    """Refuse numbers and truth values as text, so that the reader may take them as written."""
    if isinstance(value, int | float):
        raise text_wanted()
    return value


def schema_of(model: type[BaseModel], title: str) -> dict[str, Any]:
    """Return the JSON schema of a whole file, with its draft and its title."""
    return {"$schema": SCHEMA_DIALECT} | model.model_json_schema() | {"title": title}


class Description(BaseModel):
    """The base of every model of a description: unknown keys are refused and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Text = Annotated[str, Field(max_length=TEXT_CHARACTERS_MAX), BeforeValidator(_read_text, json_schema_input_type=str)]
SomeText = Annotated[Text, Field(min_length=1)]
# A name that may be any text of one line, such as a job's or a file's.
Label = Annotated[SomeText, AfterValidator(_read_label)]
_SOME_TEXT = BeforeValidator(_read_text, json_schema_input_type=str)
JobName = Annotated[
    str, Field(min_length=1, max_length=JOB_NAME_CHARACTERS_MAX), _SOME_TEXT, AfterValidator(_read_label)
]
FileLabel = Annotated[
    str, Field(min_length=1, max_length=FILE_NAME_CHARACTERS_MAX), _SOME_TEXT, AfterValidator(_read_label)
]
# The names of a study's parts; longer ones would not fit beside a figure.
StudyLabel = Annotated[
    str, Field(min_length=1, max_length=STUDY_LABEL_CHARACTERS_MAX), _SOME_TEXT, AfterValidator(_read_label)
]
Variable = Annotated[Text, AfterValidator(_read_variable)]
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=NAME_CHARACTERS_MAX)]
PolicyName = Annotated[str, Field(pattern=POLICY_PATTERN, max_length=NAME_CHARACTERS_MAX)]
Processors = Annotated[int, Field(strict=True, ge=1, le=PROCESSORS_MAX)]
Count = Annotated[int, Field(strict=True, ge=1)]
LicenseCounts = Annotated[dict[Name, Annotated[Count, Field(le=LICENSE_COUNT_MAX)]], Field(max_length=LICENSES_MAX)]
Tries = Annotated[Count, Field(le=TRIES_MAX)]
CountOrZero = Annotated[int, Field(strict=True, ge=0)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Bandwidth = Annotated[Number, Field(ge=0, le=BANDWIDTH_MBIT_S_MAX)]
Capacity = Annotated[Number, Field(gt=0, le=BANDWIDTH_MBIT_S_MAX)]
Seconds = Annotated[Number, Field(ge=0)]
SecondsAboveZero = Annotated[Number, Field(gt=0)]
Fraction01 = Annotated[Number, Field(ge=0, le=1)]
FractionAboveZero = Annotated[Number, Field(gt=0, le=1)]
DurationText = Annotated[str, Field(pattern=DURATION_PATTERN)]
Duration = Annotated[float, BeforeValidator(_read_duration, json_schema_input_type=float | DurationText)]
Size = Annotated[int, Field(le=SIZE_BYTES_MAX), BeforeValidator(_read_size, json_schema_input_type=str)]
Memory = Annotated[int, Field(ge=0, le=SIZE_BYTES_MAX), BeforeValidator(_read_memory, json_schema_input_type=str)]
SizeBytes = Annotated[int, Field(strict=True, ge=0, le=SIZE_BYTES_MAX)]


def as_constant(value: Any) -> Any:
    """Read a number alone as a constant."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"constant": value}
    return value


def exactly_one(model: Description, *keys: str) -> None:
    """Raise for a validator unless exactly one of these is given."""
    given = [key for key in keys if getattr(model, key) is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} are given together" if given else "it says nothing"
        raise wrong(what, f"write exactly one of {', '.join(keys)}")


def in_order(uniform: tuple[float, float] | None) -> None:
    """Raise for a validator if the least is above the most."""
    if uniform is not None and uniform[0] > uniform[1]:
        raise wrong("the least is above the most", "write [least, most]", "uniform")


class KnownNames(NamedTuple):
    """The names of sites and policies that a job may use; None if any is allowed.

    A reader refuses a job that names another, at the place of the name. Policies are compared without regard to case.
    """

    sites: Collection[str] | None = None
    policies: Collection[str] | None = None

    def site_problem(self, name: str) -> tuple[str, str] | None:
        """Return what is wrong with the name of a site, and advice; None if it is valid."""
        if self.sites is None or name in self.sites:
            return None
        return f"there is no site {shown(name)}", nearest(name, list(self.sites))

    def policy_problem(self, name: str) -> tuple[str, str] | None:
        """Return what is wrong with the name of a policy, and advice; None if it is valid.

        The catalogue reads parameters behind the name.
        """
        bare = name.partition("(")[0]
        if self.policies is None or bare.casefold() in {policy.casefold() for policy in self.policies}:
            return None
        return f"there is no policy {shown(bare)}", nearest(bare, list(self.policies))


ANY_NAMES = KnownNames()
