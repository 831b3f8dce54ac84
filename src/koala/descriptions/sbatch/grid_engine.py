"""The options of Grid Engine in the terms of Slurm."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from koala.descriptions.errors import SourceText, shown
from koala.descriptions.sbatch.foreign import (
    CHECKPOINT,
    ENVIRONMENT,
    INTERACTIVE,
    LAYOUT,
    ForeignError,
    ForeignOptions,
    made,
)
from koala.descriptions.sbatch.option_words import MAIL, PRIORITY, SITE, SUBMITTER, OptionWord
from koala.model.launch import BatchDialect

_GRID_ENGINE_MEMORY = re.compile(r"([0-9]{1,15})([kmgKMG]?)")
# Parallel environments of this kind are on one node: one task with all the processors.
_ONE_NODE = re.compile(r"smp|shm|shared|sharedmem|thread(?:s|ed)?|omp|openmp|mt", re.IGNORECASE)


class GridEngineOptions(ForeignOptions):
    """The options of Grid Engine."""

    dialect = BatchDialect.GRID_ENGINE
    same: ClassVar[Mapping[str, str]] = {"-N": "job-name", "-wd": "chdir", "-v": "export"}
    noted: ClassVar[Mapping[str, str]] = {
        "-A": SITE, "-P": SITE, "-M": MAIL, "-m": MAIL, "-p": PRIORITY, "-js": PRIORITY, "-V": ENVIRONMENT,
        "-cwd": "a component starts in a directory of its own, with the files that travel with the job",
        "-R": "plans keep places for jobs that wait", "-notify": CHECKPOINT, "-ckpt": CHECKPOINT, "-c": CHECKPOINT,
        "-binding": LAYOUT, "-ac": SITE, "-dc": SITE, "-sc": SITE, "-shell": SITE, "-sync": SUBMITTER,
        "-now": SUBMITTER, "-terse": SUBMITTER, "-verify": SUBMITTER, "-w": SUBMITTER, "-hard": LAYOUT,
    }  # fmt: skip
    refused: ClassVar[Mapping[str, str]] = {
        "-soft": "remove it and what follows; what a job asks for it needs",
        "-ar": "write the reservation in the grid file, among the submit_options of the site",
        "-dl": "remove it; write -l h_rt, and cancel the job when it is too late",
        "-masterq": "remove it; all tasks of a component are alike", "-pty": INTERACTIVE,
        "-hold_jid_ad": "write -hold_jid", "-C": "remove it; options stand on lines that begin with #$",
    }  # fmt: skip
    variables: ClassVar[Mapping[str, str]] = {
        "JOB_ID": "%j", "JOB_NAME": "%x", "TASK_ID": "%a", "SGE_TASK_ID": "%a", "USER": "%u", "HOSTNAME": "%N",
    }  # fmt: skip
    _values: ClassVar[Mapping[str, int]] = {"-pe": 2, "-ckpt": 1}
    _alone: ClassVar[frozenset[str]] = frozenset({
        "-cwd", "-V", "-notify", "-h", "-terse", "-verify", "-hard", "-soft", "-pty",
    })  # fmt: skip
    _no_effect: ClassVar[Mapping[str, str]] = {
        "s_rt": SITE, "s_cpu": SITE, "h_cpu": SITE, "s_vmem": SITE, "h_fsize": SITE, "s_fsize": SITE, "h_stack": SITE,
        "s_stack": SITE, "h_core": SITE, "s_core": SITE, "h_data": SITE, "s_data": SITE, "arch": SITE, "s_rss": SITE,
        "h_rss": SITE,
    }  # fmt: skip

    def __init__(self, content: SourceText, problem: Callable[[int, str, str], None]) -> None:
        super().__init__(content, problem)
        self._tasks: tuple[OptionWord, OptionWord] | None = None
        self._at_a_time: OptionWord | None = None

    def _cut(self, words: list[OptionWord]) -> Iterator[tuple[str, OptionWord, list[OptionWord]]]:
        at = 0
        while at < len(words):
            word = words[at]
            if not word.text.startswith("-"):
                self._problem(word.index, f"{shown(word.text)} is not an option", "options start with -")
                at += 1
                continue
            wanted = 0 if word.text in self._alone else self._values.get(word.text, 1)
            values = words[at + 1 : at + 1 + wanted]
            at += 1 + len(values)
            if len(values) < wanted:
                self._problem(word.index, f"{shown(word.text)} needs a value", f"write {word.text} VALUE")
            else:
                yield word.text, word, values

    def _own(self, flag: str) -> Callable[[OptionWord, list[OptionWord]], None] | None:
        return {
            "-l": self._resource_list, "-pe": self._environment, "-j": self._both, "-S": self._interpreter,
            "-q": self._queue, "-a": self._begin, "-r": self._again, "-h": self._hold, "-t": self._indices,
            "-tc": self._limit, "-hold_jid": self._after, "-b": self._binary, "-o": self._file_name("output"),
            "-e": self._file_name("error"), "-i": self._file_name("input"),
        }.get(flag)  # fmt: skip

    def _environment(self, word: OptionWord, values: list[OptionWord]) -> None:
        name, slots = values
        least, dash, _ = slots.text.partition("-")
        if dash and least:
            self.notes.append(f"-pe {name.text} {slots.text} is taken as {least}")
        count = str(self._count(slots, least))
        if _ONE_NODE.fullmatch(name.text):
            self.add("ntasks", made("1", slots), word)
            self.add("cpus-per-task", made(count, slots), word)
        else:
            self.add("ntasks", made(count, slots), word)

    def _both(self, word: OptionWord, values: list[OptionWord]) -> None:
        said = values[0].text.lower()
        if said not in {"y", "yes", "n", "no"}:
            raise ForeignError(values[0], f"{shown(values[0].text)} is neither y nor n", "write y or n")
        self._joined = values[0] if said.startswith("y") else None

    def _indices(self, word: OptionWord, values: list[OptionWord]) -> None:
        self._tasks = word, values[0]

    def _limit(self, word: OptionWord, values: list[OptionWord]) -> None:
        self._at_a_time = values[0]

    def _after(self, word: OptionWord, values: list[OptionWord]) -> None:
        self.add("dependency", made(f"afterany:{values[0].text.replace(',', ':')}", values[0]), word)

    def _binary(self, word: OptionWord, values: list[OptionWord]) -> None:
        if values[0].text.lower() not in {"n", "no"}:
            raise ForeignError(values[0], "a script is no binary program", "remove -b")
        self.note("-b", "the job is this script")

    def _memory_bytes(self, word: OptionWord) -> int:
        found = _GRID_ENGINE_MEMORY.fullmatch(word.text)
        if found is None:
            raise ForeignError(word, f"{shown(word.text)} is not a size of memory", "write it as 4G or 500M")
        unit = found[2]
        size: int = int(found[1]) * (1024 if unit.isupper() else 1000) ** (
            "KMG".find(unit.upper()) + 1 if unit else 0
        )
        return size

    def _sizes(self) -> None:
        self._time("h_rt")
        self._noted_resources(self._no_effect)
        memory = self._resource("h_vmem", "mem_free", "virtual_free")
        if memory is not None:  # of each slot
            self.add("mem-per-cpu", self._size(self._memory_bytes(memory), memory), memory)
        if self._tasks is not None:
            word, indices = self._tasks
            limit = "" if self._at_a_time is None else f"%{self._at_a_time.text}"
            self.add("array", made(indices.text + limit, indices), word)
        elif self._at_a_time is not None:
            self.note("-tc", "there is no -t")
