"""House rules, held by reading the source: what is banned where, and what to use instead.

Layers are held by import-linter (see ``test_architecture``), style by ruff; here are the rules that neither knows.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "koala"
MODULES = sorted(PACKAGE.rglob("*.py"))
LINES_MAX = 650

# What decides has no clock, no I/O, no threads and no dice of its own.
PURE = ("model", "grid", "messages", "launching", "policies", "descriptions", "runners", "core")
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
    "threading": "koala.sites.ordered",
    "multiprocessing": "koala.sites.shell",
    "concurrent": "koala.sites.ordered",
    "signal": "koala.sites.shell",
    "subprocess": "koala.sites.shell",
}
DEALS_WITH_PROCESSES = "sites/shell.py"
DEALS_WITH_THREADS = "sites/ordered.py"
# The lab starts daemons with the module above, and runs programs to their end in one of its own.
RUNS_PROGRAMS_OF_THE_LAB = "lab/commands.py"
# Files are moved in the event loop, with pathlib, os and hashlib at hand, but no process and no clock of their own.
BANNED_IN_FILES = {
    "time": "the clock that the mover was built with",
    "datetime": "the clock that the mover was built with",
    "threading": "asyncio.to_thread",
    "multiprocessing": "asyncio.to_thread",
    "concurrent": "asyncio.to_thread",
    "signal": "a call of the driver",
    "subprocess": "koala.sites.shell",
    "socket": "a source that fsspec reads",
}
COMPILED = {"numpy", "numba"}
MAY_IMPORT_COMPILED = {
    "simulator/synthetic.py",
    "simulator/synthetic_lublin.py",
    "simulator/traces.py",
    "simulator/traces_running.py",
    "simulator/traces_summary.py",
    "simulator/traces_writing.py",
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


def name_of(module: Path) -> str:
    return module.relative_to(PACKAGE).as_posix()


def tree_of(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"), filename=str(module))


def is_pure(module: Path) -> bool:
    return name_of(module).split("/")[0].removesuffix(".py") in PURE


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(top-level package, line) of every absolute import, wherever it stands."""
    for node in ast.walk(tree):
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
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a clone: there is no list of the project's files")
    paths = (ROOT / line for line in listed.stdout.splitlines())
    return [path for path in paths if path.is_file() and path.suffix in TEXT_SUFFIXES]


modules = pytest.mark.parametrize("module", MODULES, ids=name_of)
pure_modules = pytest.mark.parametrize("module", [module for module in MODULES if is_pure(module)], ids=name_of)


def test_the_rules_are_read_from_a_package_that_is_there() -> None:
    assert {name_of(module).split("/")[0].removesuffix(".py") for module in MODULES} >= set(PURE)


@pure_modules
def test_what_decides_imports_no_clock_no_io_and_no_threads(module: Path) -> None:
    for package, line in imports(tree_of(module)):
        assert package not in BANNED_IN_PURE, (
            f"{name_of(module)}:{line}: {package} is banned here, use {BANNED_IN_PURE[package]}"
        )


@pure_modules
def test_what_decides_opens_no_files(module: Path) -> None:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "input"), (
                f"{name_of(module)}:{node.lineno}: {node.func.id}() is banned here, use text that the caller read"
            )


@modules
def test_randomness_comes_only_from_a_generator_that_is_passed_in(module: Path) -> None:
    advice = "is banned here, use a random.Random that is passed in"
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            named = {alias.name for alias in node.names} - {"Random"}
            assert not named, f"{name_of(module)}:{node.lineno}: random.{min(named)} {advice}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            assert node.attr == "Random", f"{name_of(module)}:{node.lineno}: random.{node.attr} {advice}"


@modules
def test_the_simulator_never_looks_at_the_wall_clock(module: Path) -> None:
    if not name_of(module).startswith("simulator/"):
        return
    for package, line in imports(tree_of(module)):
        assert package not in CLOCKS, f"{name_of(module)}:{line}: {package} is banned here, use {CLOCKS[package]}"


@modules
def test_sites_take_their_time_from_a_clock_and_leave_processes_to_one_module(module: Path) -> None:
    if not name_of(module).startswith("sites/"):
        return
    allowed = {DEALS_WITH_PROCESSES: {"subprocess", "signal"}, DEALS_WITH_THREADS: {"concurrent"}}.get(
        name_of(module), set()
    )
    for package, line in imports(tree_of(module)):
        assert package in allowed or package not in BANNED_IN_SITES, (
            f"{name_of(module)}:{line}: {package} is banned here, use {BANNED_IN_SITES[package]}"
        )


@modules
def test_files_are_moved_without_a_clock_and_without_processes(module: Path) -> None:
    if not name_of(module).startswith("files/"):
        return
    for package, line in imports(tree_of(module)):
        assert package not in BANNED_IN_FILES, (
            f"{name_of(module)}:{line}: {package} is banned here, use {BANNED_IN_FILES[package]}"
        )


@modules
def test_one_module_starts_processes(module: Path) -> None:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Attribute) and name_of(module) != DEALS_WITH_PROCESSES:
            started = node.attr in ("Popen", "create_subprocess_exec", "create_subprocess_shell")
            started = started or ast.unparse(node) in ("os.system", "os.popen")
            assert not started, (
                f"{name_of(module)}:{node.lineno}: {node.attr} is banned here, use koala.{DEALS_WITH_PROCESSES}"
            )


@modules
def test_the_lab_runs_programs_in_one_module(module: Path) -> None:
    if not name_of(module).startswith("lab/") or name_of(module) == RUNS_PROGRAMS_OF_THE_LAB:
        return
    for package, line in imports(tree_of(module)):
        assert package not in ("subprocess", "multiprocessing"), (
            f"{name_of(module)}:{line}: {package} is banned here, use koala.{RUNS_PROGRAMS_OF_THE_LAB}"
        )


@modules
def test_only_the_command_line_prints(module: Path) -> None:
    if name_of(module).startswith("cli/"):
        return
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", (
                f"{name_of(module)}:{node.lineno}: print() is banned here, use a value that koala.cli prints"
            )


@modules
def test_every_module_says_what_lives_in_it(module: Path) -> None:
    assert ast.get_docstring(tree_of(module)), (
        f"{name_of(module)}: no docstring; say in 2 or 3 sentences what is here"
    )


@modules
def test_every_module_can_be_read_in_one_sitting(module: Path) -> None:
    lines = len(module.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES_MAX, f"{name_of(module)}: {lines} lines; divide it, {LINES_MAX} is the limit"


@modules
def test_nothing_is_left_for_later(module: Path) -> None:
    for number, line in enumerate(module.read_text(encoding="utf-8").splitlines(), 1):
        found = UNFINISHED.search(line)
        assert found is None, (
            f"{name_of(module)}:{number}: {found.group()!r} is banned here; finish it or leave it out"
        )


@modules
def test_compiled_libraries_are_imported_only_where_they_are_used(module: Path) -> None:
    if name_of(module) in MAY_IMPORT_COMPILED or name_of(module).startswith(APPLICATIONS):
        return
    for statement in run_on_import(tree_of(module)):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for package, line in imports(statement):
                assert package not in COMPILED, (
                    f"{name_of(module)}:{line}: importing {package} with the module is banned here; "
                    f"use it in {' or '.join(sorted(MAY_IMPORT_COMPILED))}"
                )


@modules
def test_no_exception_is_caught_without_a_name(module: Path) -> None:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, (
                f"{name_of(module)}:{node.lineno}: a bare except is banned; name the exception"
            )


@pytest.mark.parametrize("text", ["import os", "def f():\n    from os.path import join", "import sys, os as o"])
def test_an_import_is_seen_wherever_it_stands(text: str) -> None:
    assert "os" in {package for package, _ in imports(ast.parse(text))}


def test_only_what_an_import_executes_counts_as_module_level() -> None:
    text = "if TYPE_CHECKING:\n    import a\ndef f():\n    import b\ntry:\n    import c\nexcept E:\n    import d\n"
    names = {
        name for each in run_on_import(ast.parse(text)) if isinstance(each, ast.Import) for name, _ in imports(each)
    }
    assert names == {"c", "d"}


def test_every_third_party_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in project.get("optional-dependencies", {}).values():
        wanted += extra
    declared = {re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower() for requirement in wanted}
    for module in MODULES:
        for package, line in imports(tree_of(module)):
            if package == "koala" or package in sys.stdlib_module_names:
                continue
            assert DISTRIBUTION_OF.get(package, package) in declared, (
                f"{name_of(module)}:{line}: {package} is not among the dependencies of pyproject.toml; declare it"
            )


def test_the_project_names_no_package_registry() -> None:
    for path in files_of_the_project():
        text = path.read_text(encoding="utf-8", errors="replace")
        for host in HOSTS:
            message = f"{path.relative_to(ROOT)}: {host} is banned here; leave the host to the installer"
            assert host not in text, message
