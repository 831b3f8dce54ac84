"""House rules, held by reading the source: what is banned where, and what to use instead.

Layers are held by import-linter (see ``test_architecture``), style by ruff; here are the rules that neither knows.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "koala"
LINES_MAX = 650
# Of one folder, without those of the folders in it.
MODULES_MAX = 16

# What decides has no clock, no I/O, no threads and no dice of its own.
PURE = ("model", "policies", "descriptions", "runners", "core", "words")
BANNED_IN_PURE = {
    "time": "the time that comes with each event",
    "datetime": "seconds since the driver's epoch, as a float",
    "socket": "a command for the driver",
    "ssl": "a command for the driver",
    "http": "a command for the driver",
    "urllib": "a command for the driver",
    "subprocess": "a command for the driver",
    "asyncio": "events in and commands out",
    "threading": "events in and commands out",
    "multiprocessing": "events in and commands out",
    "concurrent": "events in and commands out",
    "signal": "events in and commands out",
    "os": "arguments; the command line reads the environment and the files",
    "pathlib": "text; the command line reads the files",
    "shutil": "text; the command line reads the files",
    "tempfile": "text; the command line reads the files",
    "secrets": "a random.Random that is passed in",
    "uuid": "ids that come with the events",
}
CLOCKS = {"time": "the virtual time of the run", "datetime": "the virtual time of the run"}
# A site waits, reads and writes files, but its clock is an argument, one module alone deals with processes, and one
# with threads.
BANNED_IN_SITES = {
    "time": "the clock that the site was built with",
    "datetime": "the clock that the site was built with",
    "threading": "koala.sites.local.site",
    "multiprocessing": "koala.sites.processes",
    "concurrent": "koala.sites.local.site",
    "signal": "koala.sites.processes",
    "_signal": "koala.sites.processes",
    "subprocess": "koala.sites.processes",
}
DEALS_WITH_PROCESSES = "sites/processes.py"
# A program of its own, which imports nothing of Koala.
SUPERVISES_A_COMPONENT = "sites/local/supervisor.py"
# Long computations of the daemon have processes of their own, which end with it.
COMPUTES_IN_PROCESSES = "daemon/workers/pool.py"
DEALS_WITH_THREADS = "sites/local/site.py"
# The lab starts daemons with the module above, and runs programs to their end in one of its own.
RUNS_PROGRAMS_OF_THE_LAB = "lab/programs.py"
# Files are moved in the event loop, with pathlib, os and hashlib at hand, but no process and no clock of their own.
BANNED_IN_FILES = {
    "time": "the clock that the mover was built with",
    "datetime": "the clock that the mover was built with",
    "threading": "asyncio.to_thread",
    "multiprocessing": "asyncio.to_thread",
    "concurrent": "asyncio.to_thread",
    "signal": "a call of the driver",
    "subprocess": "koala.sites.processes",
    "socket": "a source that fsspec reads",
}
COMPILED = {"numpy", "numba"}
MAY_IMPORT_COMPILED = {
    "simulator/workloads/synthetic.py",
    "simulator/workloads/lublin.py",
    "simulator/traces/reader.py",
    "simulator/trace_run.py",
    "simulator/traces/summary.py",
    "simulator/traces/writer.py",
}
# Programs of their own, which the rest of the package never imports.
APPLICATIONS = "examples/applications/"
# Where the name to import is not the name to install; pydantic_core is pydantic's other half and comes with it.
DISTRIBUTION_OF = {"yaml": "pyyaml", "pydantic_core": "pydantic", "prometheus_client": "prometheus-client"}

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|[Ff]or now)\b")
# Put together here so that this file does not contain what it looks for.
HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("python" + "hosted", "org"),
        ("anaconda", "org"),
        ("npmjs", "org"),
        ("crates", "io"),
        ("rubygems", "org"),
    )
)
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".cfg", ".ini", ".sh", ".json", ".rsl", ".lark", ""}


@dataclass(frozen=True)
class Module:
    """A module as the rules see it: its name below its package, and what stands in it."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> tuple[tuple[str, int], ...]:
        return tuple(imports(self.nodes))

    @property
    def is_pure(self) -> bool:
        return self.name.split("/")[0].removesuffix(".py") in PURE

    def banned(self, packages: dict[str, str], allowed: Set[str] = frozenset()) -> Iterator[str]:
        """A complaint about each import of one of these, with what to use instead."""
        for package, line in self.imports:
            if package in packages and package not in allowed:
                yield f"{self.name}:{line}: {package} is banned here, use {packages[package]}"

    def banned_calls(self, names: Set[str], instead: str) -> Iterator[str]:
        """A complaint about each call of one of these functions."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                yield f"{self.name}:{node.lineno}: {node.func.id}() is banned here, use {instead}"


MODULES = [
    Module(prefix + path.relative_to(package).as_posix(), path.read_text(encoding="utf-8"))
    for prefix, package in (("", PACKAGE), ("papers/", ROOT / "papers" / "src" / "koala_papers"))
    for path in sorted(package.rglob("*.py"))
]


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """(top-level package, line) of every absolute import among these nodes."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.module.split(".")[0], node.lineno


def run_on_import(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that importing the module executes: not those of functions, nor those for type checkers."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            pending += statement.orelse
            continue
        yield statement
        pending += [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
        for handler in getattr(statement, "handlers", []):
            pending += handler.body


def files_of_the_project() -> list[Path]:
    """Everything that is, or is about to be, under version control."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        words = f"there is no list of the project's files, as this is no clone or git is not installed: {error}"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    paths = (ROOT / line for line in listed.stdout.splitlines())
    return [path for path in paths if path.is_file() and path.suffix in TEXT_SUFFIXES]


# --------------------------------------------------------------------------------- what a module breaks, in words


def what_decides_imports_no_clock_no_io_and_no_threads(module: Module) -> Iterator[str]:
    if module.is_pure:
        yield from module.banned(BANNED_IN_PURE)


def what_decides_opens_no_files(module: Module) -> Iterator[str]:
    if module.is_pure:
        yield from module.banned_calls({"open", "input"}, "text that the caller read")


def randomness_comes_only_from_a_generator_that_is_passed_in(module: Module) -> Iterator[str]:
    advice = "is banned here, use a random.Random that is passed in"
    for node in module.nodes:
        match node:
            case ast.ImportFrom(module="random"):
                named = {alias.name for alias in node.names} - {"Random"}
                yield from (f"{module.name}:{node.lineno}: random.{name} {advice}" for name in sorted(named))
            case ast.Attribute(value=ast.Name(id="random")) if node.attr != "Random":
                yield f"{module.name}:{node.lineno}: random.{node.attr} {advice}"


def the_simulator_never_looks_at_the_wall_clock(module: Module) -> Iterator[str]:
    if module.name.startswith("simulator/"):
        yield from module.banned(CLOCKS)


def sites_take_their_time_from_a_clock_and_leave_processes_to_one_module(module: Module) -> Iterator[str]:
    allowed = {
        DEALS_WITH_PROCESSES: {"subprocess", "signal"},
        DEALS_WITH_THREADS: {"concurrent"},
        SUPERVISES_A_COMPONENT: {"_signal"},
    }
    if module.name.startswith("sites/"):
        yield from module.banned(BANNED_IN_SITES, allowed.get(module.name, set()))


def files_are_moved_without_a_clock_and_without_processes(module: Module) -> Iterator[str]:
    if module.name.startswith("files/"):
        yield from module.banned(BANNED_IN_FILES)


def one_module_starts_processes(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and module.name not in (DEALS_WITH_PROCESSES, COMPUTES_IN_PROCESSES):
            started = node.attr in ("Popen", "create_subprocess_exec", "create_subprocess_shell")
            if started or (node.attr in ("system", "popen") and ast.unparse(node.value) == "os"):
                yield f"{module.name}:{node.lineno}: {node.attr} is banned here, use koala.{DEALS_WITH_PROCESSES}"


def the_lab_runs_programs_in_one_module(module: Module) -> Iterator[str]:
    if module.name.startswith("lab/") and module.name != RUNS_PROGRAMS_OF_THE_LAB:
        instead = f"koala.{RUNS_PROGRAMS_OF_THE_LAB}"
        yield from module.banned({"subprocess": instead, "multiprocessing": instead})


def only_the_command_line_prints(module: Module) -> Iterator[str]:
    if not module.name.startswith("cli/"):
        yield from module.banned_calls({"print"}, "a value that koala.cli prints")


def every_module_says_what_lives_in_it(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.name}: no docstring; say in 2 or 3 sentences what is here"


def every_module_can_be_read_in_one_sitting(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > LINES_MAX:
        yield f"{module.name}: {lines} lines; divide it, {LINES_MAX} is the limit"


def nothing_is_left_for_later(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if found := UNFINISHED.search(line):
            yield f"{module.name}:{number}: {found.group()!r} is banned here; finish it or leave it out"


def compiled_libraries_are_imported_only_where_they_are_used(module: Module) -> Iterator[str]:
    if module.name in MAY_IMPORT_COMPILED or module.name.startswith(APPLICATIONS):
        return
    for package, line in imports(run_on_import(module.tree)):
        if package in COMPILED:
            yield (
                f"{module.name}:{line}: importing {package} with the module is banned here; "
                f"use it in {' or '.join(sorted(MAY_IMPORT_COMPILED))}"
            )


def no_exception_is_caught_without_a_name(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{module.name}:{node.lineno}: a bare except is banned; name the exception"


# The end of a shell statement that began on another line.
SHELL_OF_LINES = re.compile(r"(;|\n)\s*(then|do)\n|\n\s*(fi|done|esac)\n")


def shell_of_more_than_a_line_is_a_file(module: Module) -> Iterator[str]:
    docstrings = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    for node in module.nodes:
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings and SHELL_OF_LINES.search(text):
                yield f"{module.name}:{node.lineno}: shell of several lines is banned here, use a .sh file"


# Words that only we understood, and what the field says.
PRIVATE_WORDS = {
    "desk": "the name of what it does",
    "errand": "script",
    "keeper": "worker, components",
    "books": "records",
    "owed": "outbox",
    "postman": "relay",
}


def names_are_the_fields_own(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for word in re.findall(r"[A-Z]?[a-z]+", node.name):
                if word.lower() in PRIVATE_WORDS:
                    advice = PRIVATE_WORDS[word.lower()]
                    yield f"{module.name}:{node.lineno}: {node.name}: {word} is banned in names, use {advice}"


def who_performs_a_command_never_looks_into_the_core(module: Module) -> Iterator[str]:
    if not module.name.startswith(("daemon/perform/", "daemon/upkeep/")):
        return
    for node in module.nodes:
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in ("scheduler", "ledger"):
                yield f"{module.name}:{node.lineno}: {name} is banned here, put what is needed into the command"
            case ast.ImportFrom(module=str(source)) if source.startswith("koala.core"):
                yield f"{module.name}:{node.lineno}: {source} is banned here, put what is needed into the command"


# Each rule with a module that breaks it.
RULES: dict[Callable[[Module], Iterator[str]], Module] = {
    what_decides_imports_no_clock_no_io_and_no_threads: Module("core/state/job.py", "def f():\n    import time"),
    what_decides_opens_no_files: Module("policies/builtin.py", "text = open('a').read()"),
    randomness_comes_only_from_a_generator_that_is_passed_in: Module(
        "cli/map/command.py", "import random\nrandom.seed(1)"
    ),
    the_simulator_never_looks_at_the_wall_clock: Module("simulator/run.py", "from datetime import datetime"),
    sites_take_their_time_from_a_clock_and_leave_processes_to_one_module: Module("sites/ssh.py", "import subprocess"),
    files_are_moved_without_a_clock_and_without_processes: Module("files/transfer/methods.py", "import socket"),
    one_module_starts_processes: Module("daemon/engine/loop.py", "import os\nos.system('date')"),
    the_lab_runs_programs_in_one_module: Module("lab/slurm/cluster.py", "import subprocess"),
    only_the_command_line_prints: Module("core/state/job.py", "print(1)"),
    every_module_says_what_lives_in_it: Module("core/state/job.py", "import msgspec"),
    every_module_can_be_read_in_one_sitting: Module("core/state/job.py", "import msgspec\n" * (LINES_MAX + 1)),
    nothing_is_left_for_later: Module("core/state/job.py", "name = 1  # TO" + "DO: another"),
    compiled_libraries_are_imported_only_where_they_are_used: Module("core/state/job.py", "import numpy as np"),
    shell_of_more_than_a_line_is_a_file: Module("sites/ssh.py", "text = 'if true; then\\n    date\\nfi\\n'"),
    names_are_the_fields_own: Module("core/state/job.py", "class PlacementDesk:\n    pass"),
    who_performs_a_command_never_looks_into_the_core: Module(
        "daemon/perform/barrier.py", "claims = engine.scheduler"
    ),
    no_exception_is_caught_without_a_name: Module("core/state/job.py", "try:\n    f()\nexcept:\n    g()"),
}


def test_the_rules_are_read_from_a_package_that_is_there() -> None:
    assert {module.name.split("/")[0].removesuffix(".py") for module in MODULES} >= set(PURE)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the_rule(rule: Callable[[Module], Iterator[str]]) -> None:
    broken = [words for module in MODULES for words in rule(module)]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(("rule", "module"), RULES.items(), ids=[rule.__name__ for rule in RULES])
def test_a_module_that_breaks_the_rule_is_named(rule: Callable[[Module], Iterator[str]], module: Module) -> None:
    assert [words.split(":")[0] for words in rule(module)] == [module.name]


@pytest.mark.parametrize("text", ["import os", "def f():\n    from os.path import join", "import sys, os as o"])
def test_an_import_is_seen_wherever_it_stands(text: str) -> None:
    assert "os" in {package for package, _ in imports(ast.walk(ast.parse(text)))}


def test_only_what_an_import_executes_counts_as_module_level() -> None:
    text = "if TYPE_CHECKING:\n    import a\ndef f():\n    import b\ntry:\n    import c\nexcept E:\n    import d\n"
    assert {package for package, _ in imports(run_on_import(ast.parse(text)))} == {"c", "d"}


def test_a_public_class_name_occurs_once() -> None:
    places: dict[str, list[str]] = {}
    for module in MODULES:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module.name)
    several = {name: where for name, where in places.items() if len(where) > 1}
    assert several == {}, "one word, one thing: name each class for the thing it is"


def test_no_folder_lists_more_modules_than_a_reader_takes_in() -> None:
    counts: dict[str, int] = {}
    for module in MODULES:
        folder, _, name = module.name.rpartition("/")
        counts[folder] = counts.get(folder, 0) + (name != "__init__.py")
    assert {folder: count for folder, count in counts.items() if count > MODULES_MAX} == {}


def test_every_third_party_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in project.get("optional-dependencies", {}).values():
        wanted += extra
    declared = {re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower() for requirement in wanted}
    for module in MODULES:
        for package, line in module.imports:
            if package in ("koala", "koala_papers") or package in sys.stdlib_module_names:
                continue
            assert DISTRIBUTION_OF.get(package, package) in declared, (
                f"{module.name}:{line}: {package} is not among the dependencies of pyproject.toml; declare it"
            )


def test_the_project_names_no_package_registry() -> None:
    for path in files_of_the_project():
        text = path.read_text(encoding="utf-8", errors="replace")
        for host in HOSTS:
            message = f"{path.relative_to(ROOT)}: {host} is banned here; leave the host to the installer"
            assert host not in text, message
