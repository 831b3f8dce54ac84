"""The definition of an experiment: a question, parameters, independent units of work, and the conclusion from their
results.

An experiment does not deal with processes, files or output: ``koala.study.frame.run`` computes the units and
``koala.study.frame.report`` writes the conclusion.
"""

from __future__ import annotations

import abc
import difflib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from koala.study.frame.claims import PaperClaim
from koala.study.frame.figures import ReportFigure
from koala.version import __version__

# The least number of seeds to judge a claim.
SEEDS_MIN = 20


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of an experiment: its own fields, of JSON types, all with defaults.

    >>> from koala.study import Parameters
    >>> class Throws(Parameters, frozen=True, kw_only=True):
    ...     dice: int = 2
    >>> Throws().dice
    2
    """


class SingleRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of one run alone, without a report, if an experiment offers that.

    Each field is an option of the command line; its description is the help, and it is required without a default.

    >>> from koala.study import SingleRun
    >>> class OneThrow(SingleRun, frozen=True, kw_only=True):
    ...     dice: int
    >>> OneThrow(dice=2)
    OneThrow(dice=2)
    """


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """An independent piece of work: ``work`` is everything that the result depends on, and ``label`` is for people.

    ``work`` is JSON and small. A file that the user named is in it as content and not as a path, so that a result
    never counts for another content.

    >>> from koala.study import Unit
    >>> unit = Unit(label="seed 1", work={"seed": 1})
    >>> unit.identity("dice") == Unit(label="the same", work={"seed": 1}).identity("dice")
    True
    """

    label: str
    work: dict[str, Any]

    def identity(self, experiment: str) -> str:
        """Return a name for the result: equal only for the same work by the same version of Koala."""
        text = msgspec.json.encode([experiment, __version__, self.work], order="sorted")
        return hashlib.sha256(text).hexdigest()[:32]


class FinishedUnit(NamedTuple):
    """A unit and its result, as it is after a round trip through JSON.

    >>> from koala.study import FinishedUnit, Unit
    >>> FinishedUnit(Unit(label="seed 1", work={"seed": 1}), {"sum": 7}).result["sum"]
    7
    """

    unit: Unit
    result: dict[str, Any]


class ReportTable(NamedTuple):
    """A table on the page: its title, a sentence on how to read it, the heads of its columns, and rows of text.

    >>> from koala.study import ReportTable
    >>> ReportTable("Sums", "The sum of each throw.", ("seed", "sum"), [("1", "7")]).heads
    ('seed', 'sum')
    """

    title: str
    caption: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class Conclusion(NamedTuple):
    """The conclusion from the results: numbers for ``report.json``, claims with their verdicts, and pictures to draw.

    ``notes`` are sentences on this run, for people. ``files`` are contents by name for other programs, to be written
    beside the report. ``tables`` are for the page.

    >>> from koala.study import Conclusion, above, judge, mean_interval
    >>> sums = mean_interval([7.0, 9.0, 8.0])
    >>> found = Conclusion({"mean": sums.mean}, [judge("D1", "Two dice show something.", [above("sum", sums)])], [])
    >>> [str(claim.verdict) for claim in found.claims]
    ['holds']
    """

    results: dict[str, Any]
    claims: Sequence[PaperClaim]
    figures: Sequence[ReportFigure]
    notes: Sequence[str] = ()
    files: Mapping[str, str | bytes] = MappingProxyType({})
    tables: Sequence[ReportTable] = ()


class ParameterError(ValueError):
    """An unknown parameter of the experiment, or an invalid value.

    >>> from koala.study import ParameterError, Parameters, Study, parameters_from, read_study
    >>> text = "{study: s, policies: [WF], grids: [das2], workloads: [koala2006-w1]}"
    >>> try:
    ...     parameters_from(read_study("s", text=text), {"dice": "2"})
    ... except ParameterError as error:
    ...     print(error)
    s has no parameter dice; there are jobs_max
    """

    def for_user(self) -> str:
        """Return which parameter, what is wrong, and the alternatives."""
        return str(self)


P = TypeVar("P", bound=Parameters)


class Experiment(abc.ABC, Generic[P]):
    """One experiment. Instances are immutable and can be sent to another process.

    ``repetitions`` is its number of seeds at first, ``seeds_max`` the maximum while a claim is undecided (by default
    the same), and ``seeds_min`` the minimum for a verdict; ``processes_max`` limits the concurrent units, if they
    would disturb each other. ``method`` is a few paragraphs for the report. ``single_type`` is set if single runs are
    offered. ``claim_word`` is the word for its claims, and ``verb`` the command that runs it by its name, if there is
    one.

    >>> from random import Random
    >>> from koala.study import Conclusion, Experiment, Parameters, Unit, above, judge, mean_interval
    >>> class Throws(Parameters, frozen=True, kw_only=True):
    ...     dice: int = 2
    >>> class Dice(Experiment[Throws]):
    ...     name, title, question = "dice", "Dice", "Do dice show more than one?"
    ...     parameters_type = Throws
    ...
    ...     def units(self, parameters, seed, repetitions):
    ...         seeds = range(seed, seed + repetitions)
    ...         return [Unit(label=f"seed {each}", work={"seed": each, "dice": parameters.dice}) for each in seeds]
    ...
    ...     def run(self, unit):
    ...         draws = Random(unit.work["seed"])
    ...         return {"sum": sum(draws.randint(1, 6) for _ in range(unit.work["dice"]))}
    ...
    ...     def conclude(self, parameters, results):
    ...         sums = mean_interval([float(each.result["sum"]) for each in results])
    ...         return Conclusion({"mean": sums.mean}, [judge("D1", "They do.", [above("sum", sums, 1.0)])], [])
    >>> Dice().run(Unit(label="seed 1", work={"seed": 1, "dice": 2}))
    {'sum': 7}
    """

    name: str
    title: str
    question: str
    method: tuple[str, ...] = ()
    repetitions: int = SEEDS_MIN
    seeds_min: int = SEEDS_MIN
    seeds_max: int = 0
    quick_repetitions: int = 3
    processes_max: ClassVar[int | None] = None
    single_type: ClassVar[type[SingleRun] | None] = None
    claim_word: str = "claim"
    verb: str = ""
    parameters_type: type[P]

    def quick(self, parameters: P) -> P:
        """Return the parameters for a first look, which takes seconds: less work in each unit."""
        return parameters

    @abc.abstractmethod
    def units(self, parameters: P, seed: int, repetitions: int) -> list[Unit]:
        """Return the work for the seeds from ``seed`` on, as many as ``repetitions``; always in the same order."""

    def more_units(
        self, parameters: P, seed: int, done: Sequence[Unit], numbers: range, undecided: Sequence[PaperClaim]
    ) -> list[Unit]:
        """Return the work of a further look: what is done, and the additions of the seeds with these numbers, from 0
        on.

        These claims are undecided, and the maximum number of seeds would probably decide them. By default the further
        seeds get all the work of the first ones.
        """
        return self.units(parameters, seed, numbers.stop)

    @abc.abstractmethod
    def run(self, unit: Unit) -> dict[str, Any]:
        """Return the result of one unit, ready for JSON. It depends on the unit alone; called in any process."""

    def command(self, shown: Mapping[str, Any]) -> str:
        """Return the command that reproduces a report, if there is one; ``shown`` are its parameters as the report
        has them."""
        if not self.verb:
            return ""
        parts = [f"{self.verb} {self.name} --seed {shown['seed']} --repetitions {shown['repetitions']}"]
        if shown["seeds_max"] > shown["repetitions"]:
            parts.append(f"--seeds-max {shown['seeds_max']}")
        defaults = msgspec.to_builtins(self.parameters_type())
        parts += [f"--set {name}={as_text(shown[name])}" for name in defaults if shown[name] != defaults[name]]
        return " ".join([*parts, "--out DIR"])

    def run_single(self, asked: Any, seed: int) -> dict[str, Any]:
        """Return one run alone in numbers, by the arguments in the ``single_type``; raise ParameterError if that is
        impossible."""
        raise ParameterError(f"{self.name} has no runs to ask for one by one; run it with --out")

    @abc.abstractmethod
    def conclude(self, parameters: P, results: Sequence[FinishedUnit]) -> Conclusion:
        """Return the conclusion from all results; they come in the order of ``units``, or of ``more_units``."""


def as_text(value: Any) -> str:
    """Return a parameter as a user writes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parameters_from(experiment: Experiment[P], settings: Mapping[str, str], *, quick: bool = False) -> P:
    """Return the experiment's parameters with these settings, which are text as a user writes it; raise
    ParameterError for an invalid one.

    With ``quick`` they start from those of a first look; settings still apply.

    >>> from koala.study import parameters_from, read_study
    >>> text = "{study: s, policies: [WF], grids: [das2], workloads: [koala2006-w1]}"
    >>> study = read_study("s", text=text)
    >>> parameters_from(study, {}) == study.parameters_type()
    True
    """
    kind = experiment.parameters_type
    _refuse_unknown(experiment, settings, kind)
    start = kind()
    if quick:
        start = experiment.quick(start)
    return msgspec.convert({**msgspec.to_builtins(start), **_values(experiment, settings, kind)}, kind)


def single_from(experiment: Experiment[Any], settings: Mapping[str, str]) -> SingleRun:
    """Return the arguments of one run alone, from text as a user writes it; raise ParameterError if they are invalid.

    >>> from koala.study import ParameterError, read_study, single_from
    >>> text = "{study: s, policies: [WF], grids: [das2], workloads: [koala2006-w1]}"
    >>> try:
    ...     single_from(read_study("s", text=text), {"policy": "WF"})
    ... except ParameterError as error:
    ...     print(error)
    s has no runs to ask for one by one, so --policy cannot be used with it; leave it out
    """
    kind = experiment.single_type
    if kind is None:
        named = " and ".join(f"--{name.replace('_', '-')}" for name in settings)
        raise ParameterError(
            f"{experiment.name} has no runs to ask for one by one, so {named} cannot be used with it; leave it out"
        )
    _refuse_unknown(experiment, settings, kind)
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in settings:
            raise ParameterError(
                f"{experiment.name}: a single run needs --{field.name.replace('_', '-')}; give it too"
            )
    return msgspec.convert(_values(experiment, settings, kind), kind)


def _refuse_unknown(experiment: Experiment[Any], settings: Mapping[str, str], kind: type[msgspec.Struct]) -> None:
    known = [field.name for field in msgspec.structs.fields(kind)]
    for name in settings:
        if name not in known:
            raise ParameterError(f"{experiment.name} has no parameter {name}; {_advice(name, known)}")


def _values(experiment: Experiment[Any], settings: Mapping[str, str], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return each setting as a value of the type of its field."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, text in settings.items():
        try:
            value = msgspec.convert(text if _is_text(types[name]) else _read(text), types[name], strict=False)
            values[name] = msgspec.to_builtins(value)
        except msgspec.ValidationError as error:
            raise ParameterError(f"{experiment.name}, parameter {name}: {text!r} will not do: {error}") from None
    return values


def _is_text(kind: Any) -> bool:
    info = msgspec.inspect.type_info(kind)
    return isinstance(info.type if isinstance(info, msgspec.inspect.Metadata) else info, msgspec.inspect.StrType)


def _read(text: str) -> Any:
    """Return a setting that is no text: JSON if it is a list or an object, else unchanged, for conversion by its
    type."""
    if text[:1] in ("[", "{"):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    try:
        number = float(text)
    except ValueError:
        return text
    return text if math.isfinite(number) else f"not a finite number: {text}"


def _advice(name: str, known: list[str]) -> str:
    if not known:
        return "it has none"
    near = difflib.get_close_matches(name, known, n=1)
    listed = f"there are {', '.join(known)}"
    return f"did you mean {near[0]}? {listed.capitalize()}" if near else listed
