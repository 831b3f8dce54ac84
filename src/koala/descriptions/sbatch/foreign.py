"""The options of PBS and of Grid Engine in the terms of Slurm, in which ``reader`` reads a script.

A supported option becomes an option of Slurm, and the submission notes which. An option with no important effect is
noted, and an option without which the job would be a different one is refused: none is dropped in silence.
"""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from koala.descriptions.errors import SourceText, shown
from koala.descriptions.sbatch.option_words import Option, OptionWord
from koala.model.launch import BatchDialect

ENVIRONMENT = "the environment of the one who submits does not travel to the sites"
LAYOUT = "the site lays tasks out over its nodes"
CHECKPOINT = "#KOALA --checkpoint says how a job saves its state"
ONE_CLUSTER = "it is a resource of one cluster; remove it, or write the job with #SBATCH lines or in YAML"
INTERACTIVE = "remove it; koala run is for commands that one waits for"
_TIME = re.compile(r"[0-9]{1,9}(?::[0-9]{1,2}){0,3}")
_VARIABLE_IN_NAME = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?|\^array_index\^")
_DATE = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})(?:\.([0-9]{2}))?")


class ForeignError(Exception):
    """A value cannot be used: where, what is wrong and what to do."""

    def __init__(self, word: OptionWord, message: str, advice: str) -> None:
        super().__init__(message)
        self.word, self.message, self.advice = word, message, advice


def made(text: str, word: OptionWord) -> OptionWord:
    """Return a word with this text at the place of the original."""
    return OptionWord(text, word.index, (word.index,) * len(text))


class ForeignOptions(ABC):
    """The options of a script for a batch system other than Slurm."""

    dialect: ClassVar[BatchDialect]
    # The meaning of the options without a method: the option of Slurm, why there is no effect, or what to do instead.
    same: ClassVar[Mapping[str, str]]
    noted: ClassVar[Mapping[str, str]]
    refused: ClassVar[Mapping[str, str]]
    # The replacement for a variable in the name of a file.
    variables: ClassVar[Mapping[str, str]]

    def __init__(self, content: SourceText, problem: Callable[[int, str, str], None]) -> None:
        self.content = content
        self.options: list[Option] = []
        self.without_effect: dict[str, dict[str, None]] = {}
        self.notes: list[str] = []
        self._problem = problem
        self._resources: dict[str, OptionWord] = {}
        self._joined: OptionWord | None = None

    def read_line(self, words: list[OptionWord]) -> None:
        """Read the options of one line."""
        for flag, word, values in self._cut(words):
            try:
                self._take(flag, word, values)
            except ForeignError as error:
                self._problem(error.word.index, error.message, error.advice)

    def finish(self) -> list[Option]:
        """Return all options in the terms of Slurm, once the last line is read."""
        try:
            self._sizes()
            for name, word in self._resources.items():
                self._problem(word.index, f"-l {name} cannot be honoured across clusters", ONE_CLUSTER)
            self._join()
        except ForeignError as error:
            self._problem(error.word.index, error.message, error.advice)
        if self.options:
            said = " ".join(
                f"--{each.name}" + (f"={shlex.quote(each.value.text)}" if each.value.text else "")
                for each in self.options
            )
            self.notes.append(f"the options for {self.dialect.title} are read as those of Slurm: {said}")
        return self.options

    @abstractmethod
    def _cut(self, words: list[OptionWord]) -> Iterator[tuple[str, OptionWord, list[OptionWord]]]:
        """Yield the flags of a line, with their places and values."""

    @abstractmethod
    def _own(self, flag: str) -> Callable[[OptionWord, list[OptionWord]], None] | None:
        """Return the handler of an option that is not just another name."""

    @abstractmethod
    def _sizes(self) -> None:
        """Read processors, memory, GPUs and time from the resources."""

    @abstractmethod
    def _memory_bytes(self, word: OptionWord) -> int:
        """Return a size of memory in bytes."""

    def _take(self, flag: str, word: OptionWord, values: list[OptionWord]) -> None:
        own = self._own(flag)
        if own is not None:
            own(word, values)
        elif flag in self.same:
            self.add(self.same[flag], values[0], word)
        elif flag in self.noted:
            self.note(flag, self.noted[flag])
        elif flag in self.refused:
            self._problem(word.index, f"{flag} cannot be honoured across clusters", self.refused[flag])
        else:
            advice = f"look at the options of {self.dialect.title} in the documentation of jobs"
            self._problem(word.index, f"{shown(flag)} is not a known option of {self.dialect.title}", advice)

    # ---------------------------------------------------------------------------------------- common to both

    def add(self, name: str, value: OptionWord, where: OptionWord) -> None:
        """Add an option of Slurm."""
        if any(each.name == name for each in self.options):
            self._problem(where.index, f"this says --{name} once more", "keep one of the two")
        else:
            self.options.append(Option(name, value, where.index))

    def note(self, flag: str, why: str) -> None:
        """Note that an option has no effect."""
        self.without_effect.setdefault(why, {})[flag] = None

    def _resource_list(self, word: OptionWord, values: list[OptionWord]) -> None:
        for part in values[0].between_commas():
            name, sign, _ = part.text.partition("=")
            if name in self._resources:
                self._problem(part.index, f"-l {name} is given twice", "keep one of the two")
            self._resources[name] = part.part(len(name) + 1) if sign else made("", part)

    def _resource(self, *names: str) -> OptionWord | None:
        """Return the first of these resources that is requested; the others have no effect beside it."""
        found = [(name, self._resources.pop(name)) for name in names if name in self._resources]
        for name, _ in found[1:]:
            self.note(f"-l {name}", f"-l {found[0][0]} counts")
        return found[0][1] if found else None

    def _noted_resources(self, why: Mapping[str, str]) -> None:
        for name in [name for name in self._resources if name in why]:
            del self._resources[name]
            self.note(f"-l {name}", why[name])

    def _count(self, word: OptionWord, text: str | None = None) -> int:
        text = word.text if text is None else text
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
            raise ForeignError(word, f"{shown(text)} is not a number from 1 on", "write digits")
        return int(text)

    def _time(self, *names: str) -> None:
        """Read a time, which without a ':' is in seconds."""
        word = self._resource(*names)
        if word is None:
            return
        if _TIME.fullmatch(word.text) is None:
            raise ForeignError(word, f"{shown(word.text)} is not a time", "write seconds, MM:SS or HH:MM:SS")
        seconds = 0
        for number, unit in zip(reversed(word.text.split(":")), (1, 60, 3600, 86_400), strict=False):
            seconds += int(number) * unit
        text = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        self.add("time", made(text, word), word)

    def _size(self, size_bytes: int, word: OptionWord) -> OptionWord:
        """Return a size as Slurm writes it, rounded up to whole KiB."""
        size, unit = -(-size_bytes // 1024), "K"
        for larger in "MGT":
            if size % 1024 or not size:
                break
            size, unit = size // 1024, larger
        return made(f"{size}{unit}", word)

    def _file_name(self, option: str) -> Callable[[OptionWord, list[OptionWord]], None]:
        """Return the handler of the name of a stream, with Slurm's variables in it."""

        def read(word: OptionWord, values: list[OptionWord]) -> None:
            value = values[0]
            host, colon, path = value.text.partition(":")
            if colon and "/" not in host:
                advice = f"write {path or 'a name'} alone"
                raise ForeignError(value, f"{shown(value.text)} names a host, and each site has its own", advice)
            if value.text.endswith("/"):
                raise ForeignError(value, f"{shown(value.text)} is a directory", "name a file")
            self.add(option, made(self._filled(value), value), word)

        return read

    def _filled(self, value: OptionWord) -> str:
        def letter(found: re.Match[str]) -> str:
            name = found[1] or found[0]
            if name not in self.variables:
                known = ", ".join(f"${each}" for each in self.variables if each.isidentifier())
                raise ForeignError(value, f"{shown(found[0])} is not filled in here", f"write one of {known}")
            return self.variables[name]

        return _VARIABLE_IN_NAME.sub(letter, value.text.replace("%", "%%"))

    def _join(self) -> None:
        """Join both streams in one file, if it has a name."""
        if self._joined is None:
            return
        names = ("error", "output") if self._joined.text == "eo" else ("output", "error")
        kept, other = (next((each for each in self.options if each.name == name), None) for name in names)
        if kept is None:
            self.note(
                "-j", "koala job logs tells the two streams apart; with the name of a file they are in that one"
            )
        elif other is None:
            self.options.append(Option(names[1], kept.value, self._joined.index))
        else:
            self._problem(other.index, f"-j says that --{names[1]} has no file of its own", "remove one of the two")

    def _interpreter(self, word: OptionWord, values: list[OptionWord]) -> None:
        first = self.content.text.partition("\n")[0]
        said = values[0].text
        if not first.startswith("#!") or first[2:].split()[:1] != [said]:
            message = f"-S names {shown(said)}, and the first line of the script does not"
            raise ForeignError(values[0], message, f"write #!{said} as its first line")
        self.note("-S", "the first line of the script says the same")

    def _queue(self, word: OptionWord, values: list[OptionWord]) -> None:
        if "@" in values[0].text:
            raise ForeignError(values[0], f"{shown(values[0].text)} names a host", "write the queue alone")
        self.add("partition", values[0], word)

    def _again(self, word: OptionWord, values: list[OptionWord]) -> None:
        said = values[0].text.lower()
        if said not in {"y", "yes", "n", "no"}:
            raise ForeignError(values[0], f"{shown(values[0].text)} is neither y nor n", "write y or n")
        self.add("requeue" if said.startswith("y") else "no-requeue", made("", word), word)

    def _hold(self, word: OptionWord, values: list[OptionWord]) -> None:
        self.add("hold", made("", word), word)

    def _begin(self, word: OptionWord, values: list[OptionWord]) -> None:
        found = _DATE.fullmatch(values[0].text)
        if found is None:
            advice = "write year, month, day, hour and minute, as 203001310800"
            raise ForeignError(values[0], f"{shown(values[0].text)} is not a whole date", advice)
        year, month, day, hour, minute, second = found.groups(default="00")
        self.add("begin", made(f"{year}-{month}-{day}T{hour}:{minute}:{second}", values[0]), word)
