"""The options of PBS Pro, OpenPBS and Torque in the terms of Slurm."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from koala.descriptions.errors import shown
from koala.descriptions.sbatch.foreign import (
    CHECKPOINT,
    ENVIRONMENT,
    INTERACTIVE,
    LAYOUT,
    ONE_CLUSTER,
    ForeignError,
    ForeignOptions,
    made,
)
from koala.descriptions.sbatch.option_words import MAIL, PRIORITY, SITE, SUBMITTER, OptionWord
from koala.model.launch import BatchDialect

_PBS_MEMORY = re.compile(r"([0-9]{1,15})([kmgt]?)b?", re.IGNORECASE)
_OUTPUT_KEPT = "outputs are kept until koala job fetch brings them"


class PbsOptions(ForeignOptions):
    """The options of PBS Pro, OpenPBS and Torque."""

    dialect = BatchDialect.PBS
    same: ClassVar[Mapping[str, str]] = {
        "-N": "job-name",
        "-d": "chdir",
        "-w": "chdir",
        "-v": "export",
        "-J": "array",
        "-t": "array",
    }
    noted: ClassVar[Mapping[str, str]] = {
        "-A": SITE, "-P": SITE, "-M": MAIL, "-m": MAIL, "-p": PRIORITY, "-V": ENVIRONMENT, "-k": _OUTPUT_KEPT,
        "-R": _OUTPUT_KEPT, "-c": CHECKPOINT, "-z": SUBMITTER, "-f": SUBMITTER,
    }  # fmt: skip
    refused: ClassVar[Mapping[str, str]] = {
        "-I": INTERACTIVE, "-X": INTERACTIVE, "-C": "remove it; options stand on lines that begin with #PBS",
        "-u": "remove it; the grid file says as whom jobs run at a site", "-L": "write -l select= or -l nodes=",
    }  # fmt: skip
    variables: ClassVar[Mapping[str, str]] = {
        "PBS_JOBID": "%j", "PBS_JOBNAME": "%x", "PBS_ARRAY_INDEX": "%a", "PBS_ARRAYID": "%a", "USER": "%u",
        "^array_index^": "%a",
    }  # fmt: skip
    _alone: ClassVar[frozenset[str]] = frozenset("hIXVzf")
    _no_effect: ClassVar[Mapping[str, str]] = {
        "place": LAYOUT, "vmem": SITE, "pvmem": SITE, "file": SITE, "cput": SITE, "pcput": SITE, "nice": PRIORITY,
        "software": SITE,
    }  # fmt: skip

    def _cut(self, words: list[OptionWord]) -> Iterator[tuple[str, OptionWord, list[OptionWord]]]:
        remaining = list(reversed(words))
        while remaining:
            word = remaining.pop()
            if not word.text.startswith("-") or len(word.text) < 2:
                self._problem(word.index, f"{shown(word.text)} is not an option", "options start with -")
                continue
            flag = word.text[:2]
            if flag[1] in self._alone:
                yield flag, word, []
            elif len(word.text) > 2:
                yield flag, word, [word.part(2)]
            elif remaining:
                yield flag, word, [remaining.pop()]
            else:
                self._problem(word.index, f"{flag} needs a value", f"write {flag} VALUE")

    def _own(self, flag: str) -> Callable[[OptionWord, list[OptionWord]], None] | None:
        return {
            "-l": self._resource_list, "-j": self._both, "-S": self._interpreter, "-q": self._queue,
            "-a": self._begin, "-r": self._again, "-h": self._hold, "-W": self._more,
            "-o": self._file_name("output"), "-e": self._file_name("error"),
        }.get(flag)  # fmt: skip

    def _both(self, word: OptionWord, values: list[OptionWord]) -> None:
        if values[0].text not in {"oe", "eo", "n"}:
            raise ForeignError(values[0], f"{shown(values[0].text)} is neither oe, eo nor n", "write oe, eo or n")
        self._joined = None if values[0].text == "n" else values[0]

    def _more(self, word: OptionWord, values: list[OptionWord]) -> None:
        for part in re.split(r",(?=[a-z_]+=)", values[0].text):
            name, _, value = part.partition("=")
            if name == "depend":
                self.add("dependency", made(re.sub(r"(?<=[0-9])\.[A-Za-z0-9.-]+", "", value), values[0]), word)
            elif name in {"stagein", "stageout"}:
                advice = "write the files under #KOALA --input-file, and what it makes under #KOALA --outputs"
                raise ForeignError(values[0], f"-W {name} cannot be honoured across clusters", advice)
            else:
                self.note(f"-W {name}", SITE)

    def _memory_bytes(self, word: OptionWord) -> int:
        found = _PBS_MEMORY.fullmatch(word.text)
        if found is None:
            raise ForeignError(word, f"{shown(word.text)} is not a size of memory", "write it as 4gb or 500mb")
        size: int = int(found[1]) * 1024 ** ("kmgt".find(found[2].lower()) + 1 if found[2] else 0)
        return size

    def _sizes(self) -> None:
        self._time("walltime")
        self._noted_resources(self._no_effect)
        select, nodes = self._resource("select"), self._resource("nodes")
        if select is not None and nodes is not None:
            raise ForeignError(nodes, "-l select and -l nodes are given together", "keep one of the two")
        if select is not None:
            processors = self._chunks(select)
        elif nodes is not None:
            processors = self._nodes(nodes)
        else:
            processors = 1
            for name, option in (("procs", "ntasks"), ("ncpus", "cpus-per-task")):
                if (word := self._resource(name)) is not None:
                    processors *= self._count(word)
                    self.add(option, word, word)
        if (gpus := self._resource("ngpus", "gpus")) is not None:
            self.add("gpus", gpus, gpus)
        if (each := self._resource("pmem")) is not None:
            self.add("mem-per-cpu", self._size(self._memory_bytes(each), each), each)
        if (all_of_it := self._resource("mem")) is not None:  # of the whole job
            size = -(-self._memory_bytes(all_of_it) // processors)
            self.add("mem-per-cpu", self._size(size, all_of_it), all_of_it)

    def _parts(self, word: OptionWord) -> tuple[int, list[tuple[str, str]]]:
        """Return the number of equal nodes or chunks, and what each has."""
        if "+" in word.text:
            advice = "write components of their own, in YAML or with #SBATCH hetjob"
            raise ForeignError(word, "several kinds of nodes are more than one component", advice)
        first, *rest = word.text.split(":")
        if not first.isdigit():
            if "=" not in first:
                raise ForeignError(word, f"{shown(first)} is a node of one cluster", "write how many nodes")
            first, rest = "1", [first, *rest]
        return self._count(word, first), [(name, value) for name, _, value in (each.partition("=") for each in rest)]

    def _chunks(self, word: OptionWord) -> int:
        count, parts = self._parts(word)
        each = dict(parts)
        processors, tasks = (self._count(word, each.pop(name, "1")) for name in ("ncpus", "mpiprocs"))
        if processors % tasks:
            message = f"{processors} processors are not the same number for each of {tasks} processes"
            raise ForeignError(word, message, "make ncpus a multiple of mpiprocs")
        threads = each.pop("ompthreads", None)
        if threads is not None and threads != str(processors // tasks):
            self.note("ompthreads", "a process has as many threads as processors; set OMP_NUM_THREADS in the script")
        self._laid_out(count, tasks, processors // tasks, word)
        if (memory := each.pop("mem", None)) is not None:
            self.add("mem", self._size(self._memory_bytes(made(memory, word)), word), word)
        if (gpus := each.pop("ngpus", None)) is not None:
            self.add("gpus-per-node", made(gpus, word), word)
        if each:
            raise ForeignError(word, f"{next(iter(each))} cannot be honoured across clusters", ONE_CLUSTER)
        return count * processors

    def _nodes(self, word: OptionWord) -> int:
        count, parts = self._parts(word)
        features = [name for name, value in parts if not value]
        each = {name: value for name, value in parts if value}
        tasks = self._count(word, each.pop("ppn", "1"))
        self._laid_out(count, tasks, 1, word)
        if (gpus := each.pop("gpus", None)) is not None:
            self.add("gpus-per-node", made(gpus, word), word)
        if features:
            self.add("constraint", made("&".join(features), word), word)
        if each:
            raise ForeignError(word, f"{next(iter(each))} cannot be honoured across clusters", ONE_CLUSTER)
        return count * tasks

    def _laid_out(self, nodes: int, tasks: int, processors: int, word: OptionWord) -> None:
        self.add("nodes", made(str(nodes), word), word)
        self.add("ntasks-per-node", made(str(tasks), word), word)
        if processors > 1:
            self.add("cpus-per-task", made(str(processors), word), word)
