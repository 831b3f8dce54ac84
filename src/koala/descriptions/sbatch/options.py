"""The option lines of a batch script: which lines count, how they are cut into options, and which options exist.

``reader`` defines the meaning of the options for a job. Options of Slurm without an important effect are accepted and
noted; options without which the job would be a different one are listed with what to do instead. None is
dropped in silence.
"""

from __future__ import annotations

import re

from koala.descriptions.errors import ProblemList, SourceText, shown
from koala.descriptions.sbatch.grid_engine import GridEngineOptions
from koala.descriptions.sbatch.option_words import MAIL, PRIORITY, SITE, SUBMITTER, Option, OptionWord
from koala.descriptions.sbatch.pbs import PbsOptions
from koala.descriptions.yaml.problems import nearest
from koala.model.launch import BatchDialect, dialect_of, dialect_of_line

# Long name -> its letter, if it has one. All of them take a value.
SBATCH_OPTIONS: dict[str, str | None] = {
    "ntasks": "n",
    "nodes": "N",
    "ntasks-per-node": None,
    "cpus-per-task": "c",
    "cpus-per-gpu": None,
    "job-name": "J",
    "time": "t",
    "chdir": "D",
    "output": "o",
    "error": "e",
    "input": "i",
    "export": None,
    "clusters": "M",
    "constraint": "C",
    "gpus": "G",
    "gpus-per-node": None,
    "gpus-per-task": None,
    "gres": None,
    "mem": None,
    "mem-per-cpu": None,
    "mem-per-gpu": None,
    "container": None,
    "array": "a",
    "begin": "b",
    "dependency": "d",
    "hold": "H",
    "licenses": "L",
    "partition": "p",
    "requeue": None,
    "no-requeue": None,
    "signal": None,
}
KOALA_OPTIONS: dict[str, str | None] = {
    "priority": None,
    "policy": None,
    "requires": None,
    "type": None,
    "flexible": None,
    "component-min": None,
    "components-max": None,
    "splits": None,
    "input-file": None,
    "files": None,
    "outputs": None,
    "keep-for": None,
    "keep-outputs-for": None,
    "checkpoint": None,
    "checkpoint-every": None,
    "checkpoint-shared": None,
    "placement-tries": None,
    "claiming-tries": None,
    "restarts": None,
    "retry-on": None,
    "never-on": None,
}
WITHOUT_VALUE = frozenset({"checkpoint-shared", "flexible", "hold", "requeue", "no-requeue"})
REPEATABLE = frozenset({"files", "input-file", "outputs"})
# The readers of lines for other batch systems.
FOREIGN = {BatchDialect.PBS: PbsOptions, BatchDialect.GRID_ENGINE: GridEngineOptions}
# At most this many lines are named in a note.
LINES_NAMED_MAX = 5

_LAYOUT = "Koala counts processors, and the site lays them out over its nodes"
# Options of Slurm that are accepted without effect: long name -> (letter, why).
NOTED_OPTIONS: dict[str, tuple[str | None, str]] = {
    "account": ("A", SITE),
    "acctg-freq": (None, SITE),
    "batch": (None, _LAYOUT),
    "comment": (None, "a job has a name and no comment"),
    "contiguous": (None, _LAYOUT),
    "core-spec": ("S", _LAYOUT),
    "cores-per-socket": (None, _LAYOUT),
    "cpu-freq": (None, SITE),
    "delay-boot": (None, SITE),
    "distribution": ("m", _LAYOUT),
    "exclusive": (None, "a component may share its nodes with others; the grid file says otherwise for a site"),
    "extra": (None, SITE),
    "extra-node-info": ("B", _LAYOUT),
    "get-user-env": (None, "the environment of the one who submits does not travel to the sites"),
    "gpu-bind": (None, _LAYOUT),
    "gpu-freq": (None, SITE),
    "gres-flags": (None, _LAYOUT),
    "hint": (None, _LAYOUT),
    "ignore-pbs": (None, "lines of #PBS are comments beside those of #SBATCH"),
    "kill-on-invalid-dep": (None, "a job whose dependency can never come ends, always"),
    "mail-type": (None, MAIL),
    "mail-user": (None, MAIL),
    "mcs-label": (None, SITE),
    "mem-bind": (None, _LAYOUT),
    "mincpus": (None, _LAYOUT),
    "network": (None, SITE),
    "nice": (None, PRIORITY),
    "no-kill": ("k", "a job whose node fails is started again, up to its restarts"),
    "ntasks-per-core": (None, _LAYOUT),
    "ntasks-per-socket": (None, _LAYOUT),
    "open-mode": (None, "each run writes its output anew"),
    "overcommit": ("O", _LAYOUT),
    "oversubscribe": ("s", _LAYOUT),
    "parsable": (None, SUBMITTER),
    "power": (None, SITE),
    "prefer": (None, _LAYOUT),
    "priority": (None, PRIORITY),
    "profile": (None, SITE),
    "propagate": (None, SITE),
    "qos": ("q", SITE),
    "quiet": ("Q", SUBMITTER),
    "resv-ports": (None, SITE),
    "segment": (None, _LAYOUT),
    "sockets-per-node": (None, _LAYOUT),
    "spread-job": (None, _LAYOUT),
    "switches": (None, _LAYOUT),
    "thread-spec": (None, _LAYOUT),
    "threads-per-core": (None, _LAYOUT),
    "time-min": (None, "the walltime is that of --time"),
    "tres-bind": (None, _LAYOUT),
    "use-min-nodes": (None, _LAYOUT),
    "verbose": ("v", SUBMITTER),
    "wait": ("W", SUBMITTER),
    "wait-all-nodes": (None, "an application starts when all its components are there, always"),
    "wckey": (None, SITE),
}
# The noted options that stand alone, or have their value behind a '='.
NOTED_ALONE = frozenset(
    {
        "contiguous", "exclusive", "get-user-env", "ignore-pbs", "nice", "no-kill", "overcommit", "oversubscribe",
        "parsable", "propagate", "quiet", "resv-ports", "spread-job", "use-min-nodes", "verbose", "wait",
    }
)  # fmt: skip
# Options of Slurm without which the job would be a different one: long name -> (letter, what to do).
UNSUPPORTED_OPTIONS: dict[str, tuple[str | None, str]] = {
    "bb": (None, "remove it; name the data under #KOALA --input-file, and it is brought"),
    "bbf": (None, "remove it; name the data under #KOALA --input-file, and it is brought"),
    "cluster-constraint": (None, "write --clusters, or let the policy choose"),
    "container-id": (None, "write --container"),
    "deadline": (None, "remove it; write --time, and cancel the job when it is too late"),
    "exclude": ("x", "remove it; nodes on which a job failed are left out by themselves"),
    "export-file": (None, "write --export=NAME=VALUE,..."),
    "gpus-per-socket": (None, "write --gpus-per-task"),
    "nodefile": (None, "remove it; write --constraint with features of nodes, or --clusters"),
    "nodelist": ("w", "remove it; write --constraint with features of nodes, or --clusters"),
    "ntasks-per-gpu": (None, "write --ntasks and --gpus-per-task"),
    "reservation": (None, "write it in the grid file, among the submit_options of the site"),
    "test-only": (None, "remove it; write koala submit --dry-run"),
    "tmp": (None, "remove it; write --constraint with a feature of such nodes"),
    "tres-per-task": (None, "write --cpus-per-task and --gpus-per-task"),
    "wrap": (None, "write the command in the script"),
}

# A comment that looks like a directive with an extra space; prose after the word is left alone.
_SLIP = re.compile(r"#[ \t]+(SBATCH|KOALA|PBS)(?=[ \t]+(?:-|hetjob|packjob))")
_KOALA = re.compile(r"#KOALA(?=[ \t]|$)")


def _said(options: list[str]) -> str:
    """Return the options and the verb that goes with them."""
    *others, last = options
    return f"{', '.join(others)} and {last} have" if others else f"{last} has"


class OptionLines:
    """The options of a script, component by component, and the problems found in cutting them out."""

    def __init__(self, content: SourceText) -> None:
        self.content = content
        self.problems = ProblemList(content)
        self.components: list[list[Option]] = [[]]
        self.notes: list[str] = []
        self.given = 0
        # Lines that would be options without the space behind their #.
        self.slips: list[int] = []
        # Options that were accepted without effect, by the reason.
        self._without_effect: dict[str, dict[str, None]] = {}
        # The place of the line that began the present component; the first needs none.
        self._hetjob_index: int | None = None
        self._read()

    def _read(self) -> None:
        started = False
        index = 0
        late: list[int] = []
        beside: dict[BatchDialect, list[int]] = {}
        dialect = dialect_of(self.content.text) or BatchDialect.SLURM
        foreign = FOREIGN[dialect](self.content, self._note) if dialect in FOREIGN else None
        for number, line in enumerate(self.content.text.split("\n"), start=1):
            kind = dialect_of_line(line)
            if (kind or _KOALA.match(line)) and started:
                late.append(number)
            elif kind is dialect and foreign is not None:
                words = self._words(line, index, len(kind.value) + 1)
                self.given += len(words)
                foreign.read_line(words)
            elif kind is dialect:
                self._read_line("SBATCH", index, self._words(line, index, len(kind.value) + 1))
            elif kind is not None:
                beside.setdefault(kind, []).append(number)
            elif _KOALA.match(line):
                self._read_line("KOALA", index, self._words(line, index, len("#KOALA")))
            elif not started and _SLIP.match(line):
                self.slips.append(number)
            elif line.strip() and not line.lstrip().startswith("#"):
                started = True
            index += len(line) + 1
        if foreign is not None:
            for option in foreign.finish():
                self._add(option)
            self.notes += foreign.notes
            self._without_effect |= foreign.without_effect
        self._refuse_empty_component(self._hetjob_index)
        self.notes += [f"{_said(list(names))} no effect: {why}" for why, names in self._without_effect.items()]
        for kind, numbers in beside.items():
            self._note_lines(
                numbers, f"options for {kind.title}, which have no effect beside those for {dialect.title}"
            )
        # Slurm takes both for comments, and so do we: a script may write another one, or have an option switched off.
        self._note_lines(late, "after the first command, where options have no effect; move them up if meant")
        self._note_lines(
            self.slips, "a comment, as a space stands behind the #; remove the space if options are meant"
        )

    def _note_lines(self, numbers: list[int], what: str) -> None:
        if not numbers:
            return
        named = ", ".join(map(str, numbers[:LINES_NAMED_MAX]))
        more = f" and {len(numbers) - LINES_NAMED_MAX} more" if len(numbers) > LINES_NAMED_MAX else ""
        self.notes.append(f"line{'s' if len(numbers) > 1 else ''} {named}{more}: {what}")

    def _refuse_empty_component(self, index: int | None) -> None:
        """Note an empty component of a heterogeneous job, at the hetjob line that begins or ends it."""
        if index is not None and not self.components[-1]:
            self._note(
                index,
                "the component that this hetjob line begins or ends says nothing",
                "write its #SBATCH options, at least --ntasks, or remove the line",
            )

    def _read_line(self, kind: str, index: int, words: list[OptionWord]) -> None:
        if kind == "SBATCH" and words and words[0].text in {"hetjob", "packjob"}:
            self._refuse_empty_component(index if self._hetjob_index is None else self._hetjob_index)
            self._hetjob_index = index
            self.components.append([])
            for word in words[1:]:
                self._note(word.index, f"{shown(word.text)} stands after hetjob", "write it on a line of its own")
            return
        known = SBATCH_OPTIONS if kind == "SBATCH" else KOALA_OPTIONS
        remaining = list(reversed(words))
        while remaining:
            self._read_option(kind, known, remaining.pop(), remaining)

    def _read_option(
        self, kind: str, known: dict[str, str | None], word: OptionWord, remaining: list[OptionWord]
    ) -> None:
        """Read one option, and its value from the remaining words (the next one is last)."""
        if not word.text.startswith("-") or word.text in {"-", "--"}:
            self._note(word.index, f"{shown(word.text)} is not an option", "options start with - or --")
            return
        if word.text.startswith("--"):
            name, sign, _ = word.text[2:].partition("=")
            value = word.part(len(name) + 3) if sign else None
        else:
            name = self._long_name(known, word.text[1])
            value = word.part(2) if len(word.text) > 2 else None
        self.given += kind == "SBATCH"
        if name not in known and kind == "SBATCH" and name in NOTED_OPTIONS:
            if value is None and name not in NOTED_ALONE and remaining:
                remaining.pop()
            self._without_effect.setdefault(NOTED_OPTIONS[name][1], {})[f"--{name}"] = None
        elif name not in known:
            if value is None and remaining and not remaining[-1].text.startswith("-"):
                remaining.pop()
            self._note_unknown(kind, known, name, word)
        elif name in WITHOUT_VALUE:
            if value is not None:
                self._note(value.index, f"--{name} takes no value", f"write --{name} alone")
            self._add(Option(name, OptionWord("", word.index), word.index))
        elif value is None and not remaining:
            self._note(word.index, f"--{name} needs a value", f"write --{name}=VALUE")
        else:
            self._add(Option(name, value if value is not None else remaining.pop(), word.index))

    def _add(self, option: Option) -> None:
        component = self.components[-1]
        if option.name not in REPEATABLE and any(other.name == option.name for other in component):
            self._note(option.index, f"--{option.name} is given twice for one component", "keep one of the two")
        else:
            component.append(option)

    @staticmethod
    def _long_name(known: dict[str, str | None], letter: str) -> str:
        letters = {short: name for name, short in known.items() if short is not None}
        others = {**UNSUPPORTED_OPTIONS, **NOTED_OPTIONS}
        letters |= {short: name for name, (short, _) in others.items() if short is not None}
        return letters.get(letter, f"-{letter}")

    def _note_unknown(self, kind: str, known: dict[str, str | None], name: str, word: OptionWord) -> None:
        if kind == "SBATCH" and name in UNSUPPORTED_OPTIONS:
            self._note(word.index, f"--{name} cannot be honoured across clusters", UNSUPPORTED_OPTIONS[name][1])
        elif kind == "SBATCH" and name in KOALA_OPTIONS:
            self._note(word.index, f"--{name} is an option of Koala", f"write it on a line #KOALA --{name} ...")
        else:
            written = name if name.startswith("-") else f"--{name}"
            self._note(word.index, f"{shown(written)} is not a known option", nearest(name, [*known]))

    def _words(self, line: str, start: int, place: int) -> list[OptionWord]:
        """Return the words of a line from a place on; a # at the start of a word begins a comment."""
        words: list[OptionWord] = []
        while place < len(line):
            if line[place] in " \t":
                place += 1
            elif line[place] == "#":
                break
            else:
                word, place = self._word(line, start, place)
                words.append(word)
        return words

    def _word(self, line: str, start: int, place: int) -> tuple[OptionWord, int]:
        begin = place
        places: list[int] = []
        quoted: set[int] = set()
        mark = ""
        while place < len(line) and (mark or line[place] not in " \t"):
            character = line[place]
            if character == mark:
                mark = ""
            elif not mark and character in "\"'":
                mark = character
            else:
                escape = character == "\\" and mark != "'" and place + 1 < len(line)
                place += escape
                places.append(start + place)
                if escape or mark:
                    quoted.add(start + place)
            place += 1
        if mark:
            self._note(start + begin, "the quotation is not closed", f"close it with {mark}")
        text = "".join(self.content.text[at] for at in places)
        return OptionWord(text, start + begin, tuple(places), frozenset(quoted)), place

    def _note(self, index: int, message: str, advice: str) -> None:
        self.problems.note(index, message, advice)
