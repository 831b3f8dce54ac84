"""Jobs in Globus RSL: the meaning of the attributes, from subrequests to a Request.

The syntax is in ``syntax``, the names of the attributes in ``attributes``, the way back in ``writer``. Features that
Globus lacks have Koala attributes; those, and the others that concern the whole job, may stand in any subrequest and
must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, NoReturn, TypeVar

from koala.descriptions.errors import (
    CONTROL_ADVICE,
    DescriptionError,
    ProblemList,
    SourceText,
    control_problem,
    shown,
)
from koala.descriptions.fields import (
    ANY_NAMES,
    MEMORY_ADVICE,
    NAME_PATTERN,
    POLICY_PATTERN,
    SIZE_BYTES_MAX,
    KnownNames,
    duration_problem,
    is_name,
    memory_bytes,
    variable_problem,
)
from koala.descriptions.job.invalid import told
from koala.descriptions.job.order import MOMENT_ADVICE, Moment, job_number, moment
from koala.descriptions.job.outputs import OutputText, outputs_of, pattern_problem
from koala.descriptions.job.required import NOTHING_REQUIRED, required_by
from koala.descriptions.rsl.attributes import (
    COMPONENT_ATTRIBUTES,
    JOB_ATTRIBUTES,
    KNOWN_ATTRIBUTES,
    UNSUPPORTED_ATTRIBUTES,
)
from koala.descriptions.rsl.syntax import GroupValue, Relation, Subrequest, TextValue, Value, key_of, read_subrequests
from koala.descriptions.yaml.problems import NAME_ADVICE, nearest
from koala.model.dependency import Condition, Dependency
from koala.model.job_array import ArrayError, ArraySpec, read_array
from koala.model.nodes import TaskNeeds
from koala.model.outputs import JobOutput
from koala.model.request import (
    Application,
    Communication,
    Component,
    Flexibility,
    InputFile,
    InputMode,
    InvalidRequestError,
    JobType,
    Pattern,
    Priority,
    Request,
)
from koala.model.request_size import check_size

__all__ = ["COMPONENT_ATTRIBUTES", "JOB_ATTRIBUTES", "UNSUPPORTED_ATTRIBUTES", "read_rsl"]

# The attribute of each field of the model, for errors that the model finds.
_ATTRIBUTE_OF = {
    "name": "koalaName",
    "processors": "count",
    "processors_per_task": "koalaProcessorsPerTask",
    "memory": "koalaTaskMemory",
    "gpus": "koalaTaskGpus",
    "gpu": "koalaTaskGpu",
    "constraint": "koalaTaskConstraint",
    "image": "koalaImage",
    "requires": "koalaRequires",
    "application": "koalaScript",
    "input_files": "fileStageIn",
    "outputs": "fileStageOut",
    "keep_for": "koalaKeepFor",
    "keep_outputs_for": "koalaKeepOutputsFor",
    "site": "resourceManagerContact",
    "flexible": "koalaFlexible",
    "component_min": "koalaComponentMin",
    "components_max": "koalaComponentsMax",
    "splits": "koalaSplits",
    "placement_tries_max": "koalaPlacementTries",
    "claiming_tries_max": "koalaClaimingTries",
    "restarts_max": "koalaRestarts",
    "retry_on": "koalaRetryOn",
    "never_on": "koalaNeverOn",
    "after": "koalaAfter",
    "begin_at": "koalaBegin",
    "begin_in_s": "koalaBegin",
    "array": "koalaArray",
    "pattern": "koalaPattern",
    "bisection_mbit_s": "koalaBisectionMbit",
    "per_processor_mbit_s": "koalaPerProcessorMbit",
    "share": "koalaCommunicationShare",
    "dimensions": "koalaDimensions",
}
_ADVICE = {
    "application": "keep executable or koalaScript, and remove the other",
    "flexible": "keep one subrequest, whose count is the total, or remove koalaFlexible",
    "site": "remove resourceManagerContact or koalaFlexible",
    "bisection_mbit_s": "write koalaBisectionMbit or koalaPerProcessorMbit",
    "per_processor_mbit_s": "keep koalaBisectionMbit or koalaPerProcessorMbit",
}
_JOB_TYPES = {
    "single": JobType.PLAIN,
    "multiple": JobType.PLAIN,
    "plain": JobType.PLAIN,
    "mpi": JobType.MPI,
    "torchrun": JobType.TORCHRUN,
}
_AFTER_ADVICE = "write (koalaAfter = (done 17 18)(ended 19_3)): done, ended, started or failed, and numbers of jobs"
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?")
# Cached for the known attributes: they are few, and used again and again.
_known_key = cache(key_of)

T = TypeVar("T")


def read_rsl(text: str, source: str, known: KnownNames = ANY_NAMES) -> Request:
    """Return the Request that an RSL text describes; raise DescriptionError with all problems if it is invalid."""
    content, subrequests = read_subrequests(text, source)
    return _Reader(content, subrequests, known).request()


class _UnreadableError(Exception):
    """A value was refused, and the problem is noted; the reader continues with the next attribute."""


class _Reader:
    def __init__(self, content: SourceText, subrequests: tuple[Subrequest, ...], known: KnownNames) -> None:
        self.content = content
        self.known = known
        self.subrequests = subrequests
        self.problems = ProblemList(content)
        self.attributes = [self._by_attribute(subrequest) for subrequest in subrequests]

    def request(self) -> Request:
        fields = [self._component(attributes) for attributes in self.attributes]
        job = self._job()
        self.problems.refuse()
        components = [self._built(index, each) for index, each in enumerate(fields)]
        try:
            flexible, communication = job.pop("flexible", None), job.pop("communication", None)
            request = Request(
                components=tuple(components),
                flexible=None if flexible is None else Flexibility(**flexible),
                communication=None if communication is None else Communication(**communication),
                **job,
            )
            check_size(request)
            return request
        except InvalidRequestError as error:
            raise self._invalid(error, range(len(self.subrequests))) from None

    def _built(self, index: int, fields: dict[str, Any]) -> Component:
        try:
            application = Application(**fields.pop("application"))
            return Component(application=application, **fields)
        except InvalidRequestError as error:
            raise self._invalid(error, range(index, index + 1)) from None

    def _invalid(self, error: InvalidRequestError, indices: range) -> DescriptionError:
        key = key_of(_ATTRIBUTE_OF.get(error.field, error.field))
        message, advice = told(error, _ADVICE)
        for index in indices:
            if key in self.attributes[index]:
                return self.content.error(self.attributes[index][key].index, message, advice)
        return self.content.error(self.subrequests[indices[0]].index, f"{error.field}: {message}", advice)

    def _by_attribute(self, subrequest: Subrequest) -> dict[str, Relation]:
        attributes: dict[str, Relation] = {}
        for relation in subrequest.relations:
            name = shown(relation.attribute)
            if relation.key in UNSUPPORTED_ATTRIBUTES:
                self._note(relation, f"the attribute {name} is not supported", UNSUPPORTED_ATTRIBUTES[relation.key])
            elif relation.key not in KNOWN_ATTRIBUTES:
                known = sorted(KNOWN_ATTRIBUTES.values())
                self._note(relation, f"the attribute {name} is not known", nearest(relation.attribute, known))
            elif relation.key in attributes:
                self._note(relation, f"the attribute {name} is given twice in one subrequest", "keep one of the two")
            else:
                attributes[relation.key] = relation
        return attributes

    # ---------------------------------------------------------------------------- components and the job

    def _component(self, attributes: dict[str, Relation]) -> dict[str, Any]:
        def get(name: str, read: Callable[[Relation], T]) -> T | None:
            return self._read(attributes.get(_known_key(name)), read)

        get("subjobStartType", self._start_type)
        application: dict[str, Any] = {
            name: get(name, self._some_text) for name in ("directory", "stdin", "stdout", "stderr")
        }
        application["image"] = get("koalaImage", self._some_text)
        application["partition"] = get("queue", self._label)
        application["executable"] = get("executable", self._label)
        application["arguments"] = get("arguments", self._texts) or ()
        application["environment"] = get("environment", self._pairs) or ()
        application["script"] = get("koalaScript", self._one_text)
        requires = get("koalaRequires", self._programs)
        if requires is None:
            requires = required_by(*(application[name] for name in ("script", "executable", "arguments")))
        application["requires"] = requires
        per_task = get("koalaProcessorsPerTask", self._whole)
        application["processors_per_task"] = 1 if per_task is None else per_task
        needs = TaskNeeds(
            memory_bytes=get("koalaTaskMemory", self._memory) or 0,
            gpus=get("koalaTaskGpus", self._whole) or 0,
            gpu=get("koalaTaskGpu", self._one_text) or "",
            constraint=get("koalaTaskConstraint", self._one_text) or "",
        )
        chunks = dict.fromkeys(get("koalaChunkFiles", self._texts) or ())
        files = get("fileStageIn", lambda relation: self._files(relation, chunks)) or ()
        names = {file.name for file in files}
        missing = next((name for name in chunks if name not in names), None)
        if missing is not None:
            self._note(
                attributes["koalachunkfiles"],
                f"{shown(missing)} is not among the files of this subrequest",
                "name it in fileStageIn too",
            )
        return {
            # As in Globus, a subrequest without a count is one process.
            "processors": get("count", self._whole) if "count" in attributes else 1,
            "site": get("resourceManagerContact", self._site),
            "application": application,
            "input_files": files,
            "outputs": get("fileStageOut", lambda relation: self._outputs(relation, application)) or (),
            "needs": None if needs == TaskNeeds() else needs,
        }

    def _job(self) -> dict[str, Any]:
        job: dict[str, Any] = {
            "name": self._agreed("koalaName", self._label),
            "priority": self._agreed("koalaPriority", self._choice({str(value): value for value in Priority})),
            "policy": self._agreed("koalaPolicy", self._policy),
            "job_type": self._agreed("jobType", self._choice(_JOB_TYPES)),
            "walltime_s": self._walltime_s(),
            "placement_tries_max": self._agreed("koalaPlacementTries", self._whole),
            "claiming_tries_max": self._agreed("koalaClaimingTries", self._whole),
            "restarts_max": self._agreed("koalaRestarts", self._whole),
            "retry_on": self._agreed("koalaRetryOn", self._wholes),
            "never_on": self._agreed("koalaNeverOn", self._wholes),
            "flexible": self._flexible(),
            "home": self._agreed("koalaHome", self._site),
            "keep_for_s": self._agreed("koalaKeepFor", self._seconds),
            "keep_outputs_for_s": self._agreed("koalaKeepOutputsFor", self._seconds),
            "communication": self._communication(),
            "after": self._agreed("koalaAfter", self._after),
            "hold": self._agreed("koalaHold", self._choice({"yes": True, "no": False})),
            "array": self._agreed("koalaArray", self._array),
        }
        begin = self._agreed("koalaBegin", self._moment)
        if begin is not None:
            job |= {"begin_at": begin.at, "begin_in_s": begin.in_s}
        return {key: value for key, value in job.items() if value is not None}

    def _walltime_s(self) -> float | None:
        times_s = [
            (name, self._agreed(name, read))
            for name, read in (
                ("maxWallTime", self._minutes),
                ("maxTime", self._minutes),
                ("koalaWalltimeSeconds", self._seconds),
            )
        ]
        given = [(name, time_s) for name, time_s in times_s if time_s is not None]
        for name, time_s in given[1:]:
            if time_s != given[0][1]:
                relation = next(found for each in self.attributes if (found := each.get(key_of(name))))
                self._note(relation, f"{name} says another time than {given[0][0]}", "keep one of the two")
        return given[0][1] if given else None

    def _flexible(self) -> dict[str, Any] | None:
        wanted = self._agreed("koalaFlexible", self._choice({"yes": True, "no": False}))
        flexible = {
            "component_min": self._agreed("koalaComponentMin", self._whole),
            "components_max": self._agreed("koalaComponentsMax", self._whole),
            "splits": self._agreed("koalaSplits", self._splits),
        }
        given = {key: value for key, value in flexible.items() if value is not None}
        if given and not wanted:
            name = _ATTRIBUTE_OF[next(iter(given))]
            relation = next(found for each in self.attributes if (found := each.get(key_of(name))))
            self._note(relation, f"{name} is for flexible jobs", "add (koalaFlexible=yes), or remove it")
        return given if wanted else None

    def _communication(self) -> dict[str, Any] | None:
        communication = {
            "pattern": self._agreed("koalaPattern", self._choice({str(value): value for value in Pattern})),
            "bisection_mbit_s": self._agreed("koalaBisectionMbit", self._number),
            "per_processor_mbit_s": self._agreed("koalaPerProcessorMbit", self._number),
            "share": self._agreed("koalaCommunicationShare", self._number),
            "dimensions": self._agreed("koalaDimensions", self._whole),
        }
        return {key: value for key, value in communication.items() if value is not None} or None

    def _agreed(self, name: str, read: Callable[[Relation], T]) -> T | None:
        """Return the value of an attribute of the whole job: the same wherever it is given."""
        first: T | None = None
        key = _known_key(name)
        for relation in [attributes[key] for attributes in self.attributes if key in attributes]:
            value = self._read(relation, read)
            if value is None:
                continue
            if first is None:
                first = value
            elif value != first:
                self._note(
                    relation, f"{name} differs from an earlier subrequest's", "write it once, or the same everywhere"
                )
        return first

    # ------------------------------------------------------------------------------- the kinds of values

    def _read(self, relation: Relation | None, read: Callable[[Relation], T]) -> T | None:
        """Return the value of an attribute; None if it is not given, or was refused and noted."""
        if relation is None:
            return None
        try:
            return read(relation)
        except _UnreadableError:
            return None

    def _one_text(self, relation: Relation) -> str:
        if len(relation.values) != 1 or not isinstance(relation.values[0], TextValue):
            self._refuse(relation, f"{relation.attribute} takes one value", "put text with spaces in quotes")
        return self._text(relation, relation.values[0])

    def _some_text(self, relation: Relation) -> str:
        text = self._one_text(relation)
        if not text:
            self._refuse(relation.values[0], f"{relation.attribute} is empty", "write a value, or remove it")
        return text

    def _text(self, relation: Relation, value: Value) -> str:
        if isinstance(value, GroupValue):
            self._refuse(value, f"{relation.attribute} takes text here, not parentheses", "remove the parentheses")
        return value.text

    def _texts(self, relation: Relation) -> tuple[str, ...]:
        return tuple(self._text(relation, value) for value in relation.values)

    def _programs(self, relation: Relation) -> tuple[str, ...]:
        names = self._texts(relation)
        for value, name in zip(relation.values, names, strict=True):
            if not is_name(name):
                self._refuse(value, f"{shown(name)} is not a name", NAME_ADVICE)
        return () if names == (NOTHING_REQUIRED,) else tuple(dict.fromkeys(names))

    def _label(self, relation: Relation) -> str:
        text = self._some_text(relation)
        self._refuse_control(relation.values[0], text)
        return text

    def _refuse_control(self, value: Value, name: str) -> None:
        problem = control_problem(name)
        if problem is not None:
            self._refuse(value, problem, CONTROL_ADVICE)

    def _site(self, relation: Relation) -> str:
        hint = "; a site is named as in the grid file"
        return self._name(relation, NAME_PATTERN, hint, self.known.site_problem)

    def _policy(self, relation: Relation) -> str:
        return self._name(relation, POLICY_PATTERN, "", self.known.policy_problem)

    def _name(
        self, relation: Relation, pattern: str, hint: str, unknown: Callable[[str], tuple[str, str] | None]
    ) -> str:
        text = self._some_text(relation)
        if not is_name(text, pattern):
            self._refuse(relation.values[0], f"{shown(text)} is not a name", NAME_ADVICE + hint)
        problem = unknown(text)
        if problem is not None:
            self._refuse(relation.values[0], *problem)
        return text

    def _whole_text(self, value: Value) -> int:
        if not isinstance(value, TextValue) or not _WHOLE_NUMBER.fullmatch(value.text):
            what = shown(value.text) if isinstance(value, TextValue) else "a list"
            self._refuse(value, f"{what} is not a whole number", "write digits")
        return int(value.text)

    def _whole(self, relation: Relation) -> int:
        self._one_text(relation)
        return self._whole_text(relation.values[0])

    def _memory(self, relation: Relation) -> int:
        text = self._one_text(relation)
        size = memory_bytes(text)
        if size is None or size > SIZE_BYTES_MAX:
            self._note(relation, f"{shown(text)} is not a size of memory", MEMORY_ADVICE)
            raise _UnreadableError
        return size

    def _wholes(self, relation: Relation) -> tuple[int, ...]:
        return tuple(self._whole_text(value) for value in relation.values)

    def _minutes(self, relation: Relation) -> float:
        return self._time_s(relation, self._whole(relation) * 60)

    def _seconds(self, relation: Relation) -> float:
        return self._time_s(relation, self._number(relation))

    def _number(self, relation: Relation) -> float:
        text = self._one_text(relation)
        if not _NUMBER.fullmatch(text):
            self._refuse(relation.values[0], f"{shown(text)} is not a number", "write a number, such as 300 or 0.5")
        return float(text)

    def _time_s(self, relation: Relation, seconds: float) -> float:
        problem = duration_problem(seconds)
        if problem is not None:
            self._refuse(relation.values[0], *problem)
        return float(seconds)

    def _choice(self, choices: dict[str, T]) -> Callable[[Relation], T]:
        def read(relation: Relation) -> T:
            text = self._one_text(relation)
            if text.lower() not in choices:
                self._refuse(
                    relation.values[0], f"{shown(text)} is not one of the choices", nearest(text, [*choices])
                )
            return choices[text.lower()]

        return read

    def _start_type(self, relation: Relation) -> None:
        if self._one_text(relation).lower() != "strict-barrier":
            self._refuse(
                relation.values[0],
                "components always start together at a barrier",
                "write strict-barrier, or remove the attribute",
            )

    def _pairs(self, relation: Relation) -> tuple[tuple[str, str], ...]:
        pairs = []
        for value in relation.values:
            if not isinstance(value, GroupValue) or len(value.values) != 2:
                self._refuse(value, "a variable needs a name and a value", "write (environment = (NAME value))")
            name, text = (self._text(relation, each) for each in value.values)
            problem = variable_problem(name)
            if problem is not None:
                self._refuse(value.values[0], *problem)
            pairs.append((name, text))
        return tuple(pairs)

    def _files(self, relation: Relation, chunks: Collection[str]) -> tuple[InputFile, ...]:
        files = []
        for value in relation.values:
            if not isinstance(value, GroupValue) or not 1 <= len(value.values) <= 2:
                self._refuse(value, "a file needs its name, and may have a path", "write (fileStageIn = (name path))")
            name, *paths = (self._text(relation, each) for each in value.values)
            if not name or "" in paths:
                self._refuse(value, "a file's name or path is empty", "write (name path), or (name) alone")
            self._refuse_control(value.values[0], name)
            mode = InputMode.CHUNK if name in chunks else InputMode.WHOLE
            files.append(InputFile(name=name, mode=mode, path=paths[0] if paths else None))
        return tuple(files)

    def _outputs(self, relation: Relation, application: dict[str, Any]) -> tuple[JobOutput, ...]:
        outputs = []
        for value in relation.values:
            if not isinstance(value, GroupValue) or not 1 <= len(value.values) <= 2:
                self._refuse(
                    value, "an output needs its path, and may have a target", "write (fileStageOut = (path))"
                )
            path, *targets = (self._text(relation, each) for each in value.values)
            if not path or "" in targets:
                self._refuse(value, "an output's path or target is empty", "write (path target), or (path) alone")
            if (problem := pattern_problem(path)) is not None:
                self._refuse(value, *problem)
            if targets and "://" not in targets[0] and (problem := self.known.site_problem(targets[0])):
                self._refuse(value.values[1], *problem)
            outputs.append(OutputText(path=path, to=targets[0] if targets else None))
        return outputs_of(tuple(outputs), application.get("directory"))

    def _splits(self, relation: Relation) -> tuple[tuple[int, ...], ...]:
        splits = []
        for value in relation.values:
            if not isinstance(value, GroupValue):
                self._refuse(value, "a split stands in parentheses", "write (koalaSplits = (18 6)(12 12))")
            splits.append(tuple(self._whole_text(each) for each in value.values))
        return tuple(splits)

    def _after(self, relation: Relation) -> tuple[Dependency, ...]:
        found = []
        for value in relation.values:
            if not isinstance(value, GroupValue) or len(value.values) < 2:
                self._refuse(value, "this is nothing that a job can wait for", _AFTER_ADVICE)
            condition, *numbers = (self._text(relation, each) for each in value.values)
            for number in numbers:
                job = job_number(number)
                if condition not in set(Condition) or job is None:
                    self._refuse(value, f"{shown(f'{condition} {number}')} is nothing to wait for", _AFTER_ADVICE)
                found.append(Dependency(job=job.job, condition=Condition(condition), index=job.element))
        return tuple(dict.fromkeys(found))

    def _moment(self, relation: Relation) -> Moment:
        text = self._one_text(relation)
        found = Moment(at=float(text)) if _NUMBER.fullmatch(text) else moment(text)
        if found is None:
            self._refuse(relation.values[0], f"{shown(text)} is not a time", MOMENT_ADVICE)
        return found

    def _array(self, relation: Relation) -> ArraySpec:
        try:
            return read_array(self._one_text(relation))
        except ArrayError as error:
            self._refuse(relation.values[0], str(error), error.advice)

    # ----------------------------------------------------------------------------------------- problems

    def _note(self, where: Relation | Value, message: str, advice: str) -> None:
        self.problems.note(where.index, message, advice)

    def _refuse(self, where: Relation | Value, message: str, advice: str) -> NoReturn:
        self._note(where, message, advice)
        raise _UnreadableError
