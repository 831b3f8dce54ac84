"""Jobs as batch scripts: the meaning of the options on the ``#SBATCH`` and ``#KOALA`` lines, to a Request. Options
for PBS and Grid Engine arrive in the terms of Slurm.

The script itself is what each component runs. The directory, environment, files and streams of the first component
hold for the later ones too, unless they have their own; options for the whole job stand in the first only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from koala.descriptions.errors import (
    CONTROL,
    CONTROL_ADVICE,
    DescriptionError,
    checked_source,
    control_problem,
    shown,
)
from koala.descriptions.fields import (
    ANY_NAMES,
    DURATION_ADVICE,
    NAME_PATTERN,
    POLICY_PATTERN,
    KnownNames,
    duration_problem,
    duration_s,
    is_name,
)
from koala.descriptions.job.invalid import told
from koala.descriptions.job.order import Moment, both_ends
from koala.descriptions.job.outputs import OutputText, outputs_of, pattern_problem
from koala.descriptions.job.required import NOTHING_REQUIRED, required_by
from koala.descriptions.sbatch.begin import BEGIN_ADVICE, begin_of
from koala.descriptions.sbatch.needs import NEEDS_OPTIONS, Layout, NeedsError, gpus_of_task, needs_of
from koala.descriptions.sbatch.option_words import Option, OptionWord
from koala.descriptions.sbatch.options import OptionLines
from koala.descriptions.sbatch.signals import SIGNAL_ADVICE, AskedSignal, asked_signal
from koala.descriptions.yaml.problems import NAME_ADVICE, nearest
from koala.model.checkpoint import DIRECTORY_DEFAULT, Checkpoint
from koala.model.dependency import Condition, Dependency
from koala.model.job_array import ArrayError, ArraySpec, read_array
from koala.model.launch import STREAM_ADVICE, stream_problem
from koala.model.nodes import TaskNeeds
from koala.model.request import (
    COMPONENTS_MAX,
    TEXT_CHARACTERS_MAX,
    Application,
    Component,
    Flexibility,
    InputFile,
    InputMode,
    InvalidRequestError,
    JobType,
    Licenses,
    Priority,
    Request,
)
from koala.model.request_size import check_size
from koala.model.travelling import TravellingError, TravellingFile, named_path

JOB_OPTIONS = (
    "job-name",
    "time",
    "priority",
    "policy",
    "type",
    "flexible",
    "component-min",
    "components-max",
    "splits",
    "placement-tries",
    "claiming-tries",
    "restarts",
    "retry-on",
    "never-on",
    "array",
    "begin",
    "dependency",
    "hold",
    "licenses",
    "requeue",
    "no-requeue",
    "signal",
    "files",
    "keep-for",
    "keep-outputs-for",
    "checkpoint",
    "checkpoint-every",
    "checkpoint-shared",
)
_STREAMS = {"output": "stdout", "error": "stderr", "input": "stdin"}
# The option of each field of the model, for errors that the model finds.
_OPTION_OF = {
    "name": "job-name",
    "processors": "ntasks",
    "processors_per_task": "cpus-per-task",
    "image": "container",
    "environment": "export",
    "input_files": "input-file",
    "site": "clusters",
    "flexible": "flexible",
    "component_min": "component-min",
    "components_max": "components-max",
    "splits": "splits",
    "placement_tries_max": "placement-tries",
    "claiming_tries_max": "claiming-tries",
    "restarts_max": "restarts",
    "retry_on": "retry-on",
    "never_on": "never-on",
    "after": "dependency",
    "begin_at": "begin",
    "begin_in_s": "begin",
    "outputs": "outputs",
    "keep_for": "keep-for",
    "keep_outputs_for": "keep-outputs-for",
    "checkpoint_directory": "checkpoint",
    "checkpoint_every": "checkpoint-every",
    "checkpoint_grace": "signal",
}

_ADVICE = {
    "flexible": "keep one component, whose tasks are the total, or remove --flexible",
    "site": "remove --clusters or --flexible",
}
# Slurm's names of the conditions of a dependency.
_CONDITIONS = {
    "afterok": Condition.DONE,
    "afterany": Condition.ENDED,
    "after": Condition.STARTED,
    "afternotok": Condition.FAILED,
}
_DEPENDENCY_ADVICE = "write afterok, afterany, after or afternotok with numbers of jobs, as afterok:17:18,afterany:19"
_JOB_NUMBER = re.compile(r"([1-9][0-9]{0,14})(?:_([0-9]{1,9}))?")
_TIME_ADVICE = "write MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS"
# The forms of a time, each with the units of its groups in seconds.
_TIMES: tuple[tuple[re.Pattern[str], tuple[int, ...]], ...] = (
    (re.compile(r"([0-9]{1,9})"), (60,)),
    (re.compile(r"([0-9]{1,9}):([0-9]{1,2})"), (60, 1)),
    (re.compile(r"([0-9]{1,9}):([0-9]{1,2}):([0-9]{1,2})"), (3600, 60, 1)),
    (re.compile(r"([0-9]{1,9})-([0-9]{1,2})"), (86400, 3600)),
    (re.compile(r"([0-9]{1,9})-([0-9]{1,2}):([0-9]{1,2})"), (86400, 3600, 60)),
    (re.compile(r"([0-9]{1,9})-([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})"), (86400, 3600, 60, 1)),
)
_LICENSE = re.compile(rf"({NAME_PATTERN.strip('^$')})(?:[:=]([0-9]{{1,9}}))?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

T = TypeVar("T")


def read_sbatch_noted(text: str, source: str, known: KnownNames = ANY_NAMES) -> tuple[Request, tuple[str, ...]]:
    """Return the same as ``read_sbatch``, with notes on its options without effect."""
    content = checked_source(text, source)
    if not content.text.startswith("#!"):
        raise content.error(0, "a batch script starts with #!", "write a first line such as #!/bin/sh")
    if "\r" in content.text:
        raise content.error(
            content.text.index("\r"), "the lines end as in DOS", "save the script with Unix line ends"
        )
    if len(content.text) > TEXT_CHARACTERS_MAX:
        raise content.error(
            0,
            f"the script has more than {TEXT_CHARACTERS_MAX} characters (TEXT_CHARACTERS_MAX)",
            "move large parts into files that it reads",
        )
    reader = _Reader(OptionLines(content), known)
    request = reader.request()
    return request, tuple(dict.fromkeys(reader.notes))


def read_sbatch(text: str, source: str, known: KnownNames = ANY_NAMES) -> Request:
    """Return the Request that a batch script describes; raise DescriptionError with all problems if it is invalid."""
    return read_sbatch_noted(text, source, known)[0]


def slurm_time_s(text: str) -> int | None:
    """Return a time as Slurm writes it, in seconds; None if it is none."""
    for pattern, units_s in _TIMES:
        found = pattern.fullmatch(text)
        if found:
            return sum(int(number) * unit_s for number, unit_s in zip(found.groups(), units_s, strict=True))
    return None


class _UnreadableError(Exception):
    """A value was refused, and the problem is noted; the reader continues with the next option."""


class _Reader:
    def __init__(self, lines: OptionLines, known: KnownNames) -> None:
        self.content = lines.content
        self.known = known
        self.problems = lines.problems
        self.notes = lines.notes
        self._has_options = lines.given > 0
        self._slips = lines.slips
        self._walltime_s: float | None = None
        self._applications: dict[Application, Application] = {}
        self.components = [{option.name: option for option in options} for options in lines.components]
        # Options that may be repeated are read in the order in which they stand.
        self.repeated = lines.components

    def request(self) -> Request:
        fields = [self._fields(index) for index in range(len(self.components))]
        job = self._job()
        for component in self.components[1:]:
            for name in JOB_OPTIONS:
                if name in component:
                    self._note(
                        component[name].index,
                        f"--{name} concerns the whole job",
                        "write it for the first component, before hetjob",
                    )
        if len(self.components) > COMPONENTS_MAX:
            self._note(0, f"more than {COMPONENTS_MAX} components (COMPONENTS_MAX)", "write fewer hetjob lines")
        # As in Slurm, a script without a size is one task; a script without any option is hardly meant for Slurm.
        if not self.problems and not self._has_options:
            advice = "write #SBATCH --ntasks=8, or --ntasks=1 for one task"
            if self._slips:
                advice = f"remove the space behind the # of line {self._slips[0]}, where options seem to be meant"
            self._note(0, "the script does not say the job's size", advice)
        self.problems.refuse()
        flexible = job.pop("flexible", None)
        try:
            request = Request(
                components=tuple(self._built(index, each, fields[0]) for index, each in enumerate(fields)),
                flexible=None if flexible is None else Flexibility(**flexible),
                **job,
            )
            check_size(request)
            return request
        except InvalidRequestError as error:
            raise self._invalid(error, 0) from None

    def _built(self, index: int, fields: dict[str, Any], first: dict[str, Any]) -> Component:
        application = {
            "requires": required_by(self.content.text),
            **first["application"],
            **fields["application"],
        }
        files, made = (
            fields[name] if fields[name] is not None else first[name] for name in ("input_files", "outputs")
        )
        try:
            return Component(
                processors=fields["processors"],
                site=fields["site"],
                application=self._applied(Application(script=self.content.text, **application)),
                input_files=files or (),
                needs=fields["needs"],
                outputs=outputs_of(made or (), application.get("directory")),
            )
        except InvalidRequestError as error:
            raise self._invalid(error, index) from None

    def _applied(self, application: Application) -> Application:
        """Return one object for equal applications, whatever the number of components."""
        return self._applications.setdefault(application, application)

    def _invalid(self, error: InvalidRequestError, index: int) -> DescriptionError:
        option = self.components[index].get(_OPTION_OF.get(error.field, error.field))
        where = 0 if option is None else option.index
        message, advice = told(error, _ADVICE)
        return self.content.error(where, message if option is not None else f"{error.field}: {message}", advice)

    # ------------------------------------------------------------------------------ components and the job

    def _fields(self, index: int) -> dict[str, Any]:
        application: dict[str, Any] = {
            "directory": self._get(index, "chdir", self._some_text),
            "environment": self._get(index, "export", self._environment),
            "image": self._get(index, "container", self._some_text),
            "partition": self._get(index, "partition", self._label),
            "requires": self._get(index, "requires", self._programs),
        }
        for name, field in _STREAMS.items():
            application[field] = self._get(index, name, self._file_name)
        tasks, on_a_node = self._tasks(index)
        cpus_per_task = self._cpus_per_task(index, Layout(tasks, on_a_node, 1))
        # Like the number of tasks, this is each component's own.
        application["processors_per_task"] = cpus_per_task
        files = self._all(index, "input-file", self._input_file)
        made = self._all(index, "outputs", self._made)
        return {
            "processors": tasks * cpus_per_task,
            "needs": self._needs(index, Layout(tasks, on_a_node, cpus_per_task)),
            "site": self._get(index, "clusters", self._site),
            "application": {key: value for key, value in application.items() if value is not None},
            "input_files": None if files is None else tuple(files),
            "outputs": None if made is None else tuple(OutputText(path=path) for paths in made for path in paths),
        }

    def _tasks(self, index: int) -> tuple[int, int]:
        """Return how many tasks there are, and how many of them on one node."""
        options = self.components[index]
        tasks = self._get(index, "ntasks", self._count)
        nodes = self._get(index, "nodes", self._nodes)
        per_node = self._get(index, "ntasks-per-node", self._count)
        if tasks is None:
            tasks = (nodes or 1) * (per_node or 1)
        said = [f"--{name}" for name in ("nodes", "ntasks-per-node") if name in options]
        if said and (tasks > 1 or (nodes or 1) > 1):
            verb = "has" if len(said) == 1 else "have"
            self.notes.append(
                f"{' and '.join(said)} {verb} no effect on where tasks go: the site lays them out over its nodes, on "
                "fewer or more than asked for"
            )
        return tasks, per_node or -(-tasks // (nodes or 1))

    def _cpus_per_task(self, index: int, layout: Layout) -> int:
        per_task = self._get(index, "cpus-per-task", self._count)
        per_gpu = self._get(index, "cpus-per-gpu", self._count)
        if per_gpu is None:
            return per_task or 1
        where = self.components[index]["cpus-per-gpu"].index
        if per_task is not None:
            self._note(where, "--cpus-per-task and --cpus-per-gpu are given together", "keep one of the two")
            return per_task
        try:
            gpus, _ = gpus_of_task(self._asked(index), layout)
        except NeedsError:
            return 1  # problems with the GPUs are reported where they are read
        if not gpus:
            self._note(where, "--cpus-per-gpu without GPUs", "write --gpus-per-task too, or --cpus-per-task")
        return per_gpu * (gpus or 1)

    def _asked(self, index: int) -> dict[str, str]:
        options = self.components[index]
        return {name: options[name].value.text for name in NEEDS_OPTIONS if name in options}

    def _needs(self, index: int, layout: Layout) -> TaskNeeds | None:
        given = self._asked(index)
        try:
            return needs_of(given, layout) if given else None
        except NeedsError as problem:
            option = self.components[index][problem.option]
            self._note(option.value.index, f"--{problem.option}: {problem.message}", problem.advice)
            return None

    def _job(self) -> dict[str, Any]:
        self._walltime_s = self._get(0, "time", self._time_s)
        job: dict[str, Any] = {
            "name": self._get(0, "job-name", self._label),
            "walltime_s": self._walltime_s,
            "priority": self._get(0, "priority", self._choice({str(value): value for value in Priority})),
            "policy": self._get(0, "policy", self._policy),
            "job_type": self._get(0, "type", self._choice({str(value): value for value in JobType})),
            "placement_tries_max": self._get(0, "placement-tries", self._count),
            "claiming_tries_max": self._get(0, "claiming-tries", self._count),
            "restarts_max": self._get(0, "restarts", self._whole),
            "retry_on": self._get(0, "retry-on", self._codes),
            "never_on": self._get(0, "never-on", self._codes),
            "flexible": self._flexible(),
            "array": self._get(0, "array", self._array),
            "after": self._get(0, "dependency", self._dependencies),
            "hold": True if "hold" in self.components[0] else None,
            "licenses": self._get(0, "licenses", self._licenses),
            "files": self._travelling(),
            "keep_for_s": self._get(0, "keep-for", self._duration_s),
            "keep_outputs_for_s": self._get(0, "keep-outputs-for", self._duration_s),
            "checkpoint": self._checkpoint(),
        }
        if "no-requeue" in self.components[0] and job["restarts_max"] is None:
            job["restarts_max"] = 0
        begin = self._get(0, "begin", self._moment)
        if begin is not None:
            job |= {"begin_at": begin.at, "begin_in_s": begin.in_s}
        return {key: value for key, value in job.items() if value is not None}

    def _travelling(self) -> tuple[TravellingFile, ...] | None:
        named = self._all(0, "files", self._beside)
        return None if named is None else tuple(TravellingFile(path=path) for path in sorted({*sum(named, ())}))

    def _checkpoint(self) -> Checkpoint | None:
        """Return where the job saves its state, and the signal that asks for it: --signal also works alone."""
        first = self.components[0]
        asked = self._get(0, "signal", self._signal)
        every_s = self._get(0, "checkpoint-every", self._duration_s)
        directory = self._get(0, "checkpoint", self._some_text)
        if "checkpoint" not in first:
            for name in ("checkpoint-every", "checkpoint-shared"):
                if name in first:
                    self._note(
                        first[name].index,
                        f"--{name} is for jobs that save",
                        "add --checkpoint DIRECTORY, or remove it",
                    )
            if asked is None or asked.signal is None:
                return None
        return Checkpoint(
            directory=directory or DIRECTORY_DEFAULT,
            every_s=every_s,
            signal=None if asked is None else asked.signal,
            grace_s=0.0 if asked is None else asked.grace_s,
            shared="checkpoint-shared" in first,
        )

    def _flexible(self) -> dict[str, Any] | None:
        flexible = {
            "component_min": self._get(0, "component-min", self._count),
            "components_max": self._get(0, "components-max", self._count),
            "splits": self._get(0, "splits", self._splits),
        }
        given = {key: value for key, value in flexible.items() if value is not None}
        if "flexible" in self.components[0]:
            return given
        for key in given:
            option = self.components[0][_OPTION_OF[key]]
            self._note(option.index, f"--{option.name} is for flexible jobs", "add --flexible, or remove it")
        return None

    # --------------------------------------------------------------------------------- the kinds of values

    def _get(self, index: int, name: str, read: Callable[[OptionWord], T]) -> T | None:
        option = self.components[index].get(name)
        return None if option is None else self._try(option, read)

    def _try(self, option: Option, read: Callable[[OptionWord], T]) -> T | None:
        try:
            return read(option.value)
        except _UnreadableError:
            return None

    def _all(self, index: int, name: str, read: Callable[[OptionWord], T]) -> list[T] | None:
        """Return the values of the options of this name; None if there are none."""
        options = [option for option in self.repeated[index] if option.name == name]
        values = [self._try(option, read) for option in options]
        return [value for value in values if value is not None] if options else None

    def _some_text(self, word: OptionWord) -> str:
        if not word.text:
            self._refuse(word, "the value is empty", "write a value, or remove the option")
        return word.text

    def _file_name(self, word: OptionWord) -> str:
        problem = stream_problem(self._some_text(word))
        if problem is not None:
            self._refuse(word, f"{shown(word.text)}: {problem}", STREAM_ADVICE)
        return word.text

    def _whole(self, word: OptionWord) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", word.text):
            self._refuse(word, f"{shown(word.text)} is not a whole number", "write digits")
        return int(word.text)

    def _count(self, word: OptionWord) -> int:
        number = self._whole(word)
        if number < 1:
            self._refuse(word, f"{number} is too small", "write 1 or more")
        return number

    def _nodes(self, word: OptionWord) -> int:
        """Return a number of nodes; for a range such as 2-4 the least, which Slurm accepts, too."""
        least, dash, most = word.text.partition("-")
        if dash and most != least:
            self.notes.append(f"--nodes={word.text} is taken as {least}: the site lays tasks out over its nodes")
        return self._count(word.part(0, len(least)) if dash and most.isascii() and most.isdigit() else word)

    def _duration_s(self, word: OptionWord) -> float:
        seconds = duration_s(word.text)
        if seconds is None:
            self._refuse(word, f"{shown(word.text)} is not a duration", DURATION_ADVICE)
        problem = duration_problem(seconds)
        if problem is not None:
            self._refuse(word, *problem)
        return seconds

    def _signal(self, word: OptionWord) -> AskedSignal:
        asked = asked_signal(word.text, self._walltime_s, saves="checkpoint" in self.components[0])
        if asked is None:
            self._refuse(word, f"{shown(word.text)} is not a signal", SIGNAL_ADVICE)
        self.notes += filter(None, [asked.note])
        return asked

    def _programs(self, word: OptionWord) -> tuple[str, ...]:
        if word.text == NOTHING_REQUIRED:
            return ()
        return tuple(dict.fromkeys(self._name(part) for part in word.between_commas()))

    def _paths(self, word: OptionWord) -> tuple[str, ...]:
        parts = word.between_commas()
        for part in parts:
            self._some_text(part)
        return tuple(part.text for part in parts)

    def _made(self, word: OptionWord) -> tuple[str, ...]:
        for part in word.between_commas():
            if (problem := pattern_problem(part.text)) is not None:
                self._refuse(part, *problem)
        return self._paths(word)

    def _beside(self, word: OptionWord) -> tuple[str, ...]:
        try:
            return tuple(named_path(path) for path in self._paths(word))
        except TravellingError as error:
            message, _, advice = error.message.partition("; ")
            self._refuse(word, f"{shown(error.path)} {message}", advice)

    def _codes(self, word: OptionWord) -> tuple[int, ...]:
        codes = word.text.split(",")
        if not all(re.fullmatch(r"[0-9]{1,9}", code) for code in codes):
            self._refuse(word, f"{shown(word.text)} is not a list of exit codes", "write digits, such as 75,143")
        return tuple(map(int, codes))

    def _array(self, word: OptionWord) -> ArraySpec:
        try:
            return read_array(word.text)
        except ArrayError as error:
            self._refuse(word, str(error), error.advice)

    def _moment(self, word: OptionWord) -> Moment:
        found = begin_of(word.text)
        if found is None:
            self._refuse(word, f"{shown(word.text)} is not a time that can be read here", BEGIN_ADVICE)
        self.notes += filter(None, [found.note])
        return found.moment

    def _dependencies(self, word: OptionWord) -> tuple[Dependency, ...]:
        found: dict[Dependency, None] = {}
        for each in word.text.split(","):
            kind, _, numbers = each.partition(":")
            for number in numbers.split(":"):
                job = _JOB_NUMBER.fullmatch(number)
                if kind not in _CONDITIONS or job is None:
                    self._refuse(word, f"{shown(each)} is nothing that a job can wait for", _DEPENDENCY_ADVICE)
                index = None if job[2] is None else int(job[2])
                found[Dependency(job=int(job[1]), condition=_CONDITIONS[kind], index=index)] = None
                ends = (Condition.DONE, Condition.FAILED)
                if all(Dependency(job=int(job[1]), condition=end, index=index) in found for end in ends):
                    self._refuse(word, *both_ends(f"job {number}"))
        return tuple(found)

    def _licenses(self, word: OptionWord) -> Licenses:
        found: dict[str, int] = {}
        for part in word.between_commas():
            asked = _LICENSE.fullmatch(part.text)
            if asked is None or asked[1] in found:
                why = "is no licence that can be asked for here" if asked is None else "is asked for twice"
                self._refuse(part, f"{shown(part.text)} {why}", "write NAME or NAME:COUNT, such as ansys:2,matlab")
            found[asked[1]] = int(asked[2] or 1)
        return tuple(sorted(found.items()))

    def _name(self, word: OptionWord, pattern: str = NAME_PATTERN) -> str:
        if not is_name(word.text, pattern):
            self._refuse(word, f"{shown(word.text)} is not a name", NAME_ADVICE)
        return word.text

    def _label(self, word: OptionWord) -> str:
        found = CONTROL.search(self._some_text(word))
        if found is not None:
            self._refuse(word.part(found.start()), str(control_problem(word.text)), CONTROL_ADVICE)
        return word.text

    def _policy(self, word: OptionWord) -> str:
        problem = self.known.policy_problem(self._name(word, POLICY_PATTERN))
        if problem is not None:
            self._refuse(word, *problem)
        return word.text

    def _site(self, word: OptionWord) -> str:
        if "," in word.text:
            self._refuse(
                word,
                "a component runs on one site",
                "name one cluster, or remove the option and let the policy choose",
            )
        problem = self.known.site_problem(self._name(word))
        if problem is not None:
            self._refuse(word, *problem)
        return word.text

    def _time_s(self, word: OptionWord) -> float:
        seconds = slurm_time_s(word.text)
        if seconds is None:
            self._refuse(word, f"{shown(word.text)} is not a time", _TIME_ADVICE)
        problem = duration_problem(seconds)
        if problem is not None:
            self._refuse(word, *problem)
        return float(seconds)

    def _choice(self, choices: dict[str, T]) -> Callable[[OptionWord], T]:
        def read(word: OptionWord) -> T:
            if word.text.lower() not in choices:
                self._refuse(word, f"{shown(word.text)} is not one of the choices", nearest(word.text, [*choices]))
            return choices[word.text.lower()]

        return read

    def _environment(self, word: OptionWord) -> tuple[tuple[str, str], ...]:
        if word.text.upper() in {"NONE", "NIL"}:
            return ()
        variables: list[tuple[str, str]] = []
        for part in word.between_commas():
            name, sign, value = part.text.partition("=")
            if part.text.upper() == "ALL":
                self.notes.append(
                    "--export=ALL has no effect: the environment of the one who submits does not travel to the sites"
                )
                continue
            if not sign:
                self._refuse(
                    part,
                    f"{shown(part.text)}: the environment of the one who submits does not travel to the sites",
                    "write NAME=VALUE for each variable that the job needs",
                )
            if not _VARIABLE.fullmatch(name):
                self._refuse(part, f"{shown(name)} is not the name of a variable", "write NAME=VALUE,...")
            variables.append((name, value))
        return tuple(variables)

    def _input_file(self, word: OptionWord) -> InputFile:
        name, *rest = word.text.split(":", 2)
        mode = InputMode.WHOLE
        if rest and rest[0] in set(InputMode):
            mode = InputMode(rest.pop(0))
        path = ":".join(rest) if rest else None
        if not name or path == "":
            self._refuse(
                word, "a file's name or path is empty", "write NAME, NAME:chunk, NAME:PATH or NAME:chunk:PATH"
            )
        self._label(word.part(0, len(name)))
        return InputFile(name=name, mode=mode, path=path)

    def _splits(self, word: OptionWord) -> tuple[tuple[int, ...], ...]:
        splits = []
        for split in word.text.split(","):
            parts = split.split("+")
            if not all(re.fullmatch(r"[0-9]{1,18}", part) for part in parts):
                self._refuse(word, f"{shown(split)} is not a split", "write --splits 18+6,12+12")
            splits.append(tuple(map(int, parts)))
        return tuple(splits)

    # ------------------------------------------------------------------------------------------- problems

    def _note(self, index: int, message: str, advice: str) -> None:
        self.problems.note(index, message, advice)

    def _refuse(self, word: OptionWord, message: str, advice: str) -> NoReturn:
        self._note(word.index, message, advice)
        raise _UnreadableError
