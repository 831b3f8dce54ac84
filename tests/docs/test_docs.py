"""The documentation says what is: generated parts are fresh, shown commands run as shown, links lead somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from koala.cli.daemon.background import running_pid
from tests.support.koala_in_scripts import koala_for_scripts
from tests.support.warm_koala import DAEMON, start_koala

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
PICTURES = sorted((DOCS / "images").glob("*.svg"))
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# Addresses of a daemon in commands for readers; names that by design belong to nobody.
# Nobody has a name that ends in .example.
EXAMPLE_ADDRESS = re.compile(
    r"(https?|ftp)://(koala|([a-z]+\.)+example|127\.0\.0\.1)(:\d+)?(?=[/\s\"]|$)", re.MULTILINE
)
ADDRESS = re.compile(r"(?:https?:)?//[A-Za-z0-9.-]+\.[a-z]+[^\s\"')>]*")
# The name of the language that an SVG is written in; nothing is fetched from there.
SVG_NAMESPACE = "http://www.w3.org/2000/svg"
# A command that begins with koala, and what its output goes into.
KOALA_FIRST = re.compile(r"koala (?P<words>[^|<>;&$`*?]+)(?P<into>([|>].*)?)")
# A command that calls ``koala`` after its first word, or runs a shell script, which may call ``koala``.
SCRIPT = re.compile(r"\b(koala|sh) ")
# What most of them import.
IMPORTED = (
    "koala.cli.map.command",
    "koala.cli.map.report",
    "koala.cli.place.command",
    "koala.cli.simulate.command",
    "koala.cli.simulate.trace",
    "koala.cli.torture",
    "koala.cli.trace",
    "koala.descriptions.grid.form",
    "koala.descriptions.mapping.application",
    "koala.descriptions.mapping.grid",
    "koala.descriptions.workload.form",
    "koala.simulator.torture.torture",
    "koala.simulator.trace_run",
    "numba.np.linalg",
    "rich.table",
    "scipy.linalg",
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def script(name: str) -> ModuleType:
    """A script of the documentation as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


console_blocks = script("console_blocks")


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> Iterator[str]:
    yield from LINK.findall(without_code(page.read_text(encoding="utf-8")))


def test_generated_parts_are_what_the_script_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    assert script("generate").main(["--check"]) == 0, capsys.readouterr().out


def run_warm(imported: tuple[str, ...], command: str, directory: Path) -> tuple[int, str]:
    """As the shell of the pages does, but every ``koala`` is forked from a process that has ``imported`` this."""
    first = KOALA_FIRST.fullmatch(command)
    if first is None:
        return run_in_warm_shell(imported, command, directory)
    environment = console_blocks.environment(directory)
    with tempfile.TemporaryFile() as output, Path(os.devnull).open("rb") as nothing:
        said = output.fileno()
        after, writing = None, said
        if first["into"]:
            into = f"cat {first['into']}" if first["into"].startswith(">") else first["into"].removeprefix("|")
            reading, writing = os.pipe()
            after = subprocess.Popen(
                ["/bin/sh", "-c", into], cwd=directory, env=environment, stdin=reading, stdout=said, stderr=said
            )
            os.close(reading)
        koala = start_koala(
            shlex.split(first["words"]),
            stdin=nothing.fileno(),
            stdout=writing,
            stderr=said,
            env=environment,
            cwd=directory,
            imported=imported,
        )
        if after is not None:
            os.close(writing)
        code = koala.wait(console_blocks.TIMEOUT_S)
        if after is not None:
            code_after = after.wait(console_blocks.TIMEOUT_S)
            code = code_after if first["into"].startswith("|") else code
        output.seek(0)
        return code, output.read().decode()


def run_in_warm_shell(imported: tuple[str, ...], command: str, directory: Path) -> tuple[int, str]:
    """A command of which ``koala`` is not the first word, or a script."""
    done: tuple[int, str]
    if SCRIPT.search(command):
        with tempfile.TemporaryDirectory() as beside, koala_for_scripts(Path(beside), imported) as folder:
            done = console_blocks.run_in_shell(f"PATH={shlex.quote(str(folder))}:$PATH; {command}", directory)
    else:
        done = console_blocks.run_in_shell(command, directory)
    return done


def check_that_no_daemon_is_left(state: Path) -> None:
    daemon = running_pid(state) if state.exists() else None
    if daemon is not None:
        os.kill(daemon, signal.SIGKILL)
    assert daemon is None, "the page left its daemon running"


@pytest.mark.parametrize("page", console_blocks.pages(), ids=name_of)
def test_commands_on_a_page_run_and_print_what_it_shows(page: Path) -> None:
    shown = page.read_text(encoding="utf-8")
    warm = partial(run_warm, DAEMON if console_blocks.STARTS_DAEMON in shown else IMPORTED)
    run = console_blocks.run_in_shell if page.parent == ROOT else warm
    # The socket of a daemon needs a short path.
    with tempfile.TemporaryDirectory() as directory:
        now = console_blocks.refreshed(shown, Path(directory), run)
        check_that_no_daemon_is_left(Path(directory) / console_blocks.STATE / "koala")
    assert now == shown, "run: python docs/console_blocks.py"


def test_a_command_that_fails_without_saying_so_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(console_blocks.UnexpectedExitError, match="exits with 3"):
        console_blocks.refreshed("```console\n$ exit 3\n```\n", tmp_path)


def test_what_differs_only_in_times_is_kept_where_a_daemon_runs(tmp_path: Path) -> None:
    def run(command: str, directory: Path) -> tuple[int, str]:
        return 0, "Job 1 is done: ran 0.3s on A 4.\n"

    shown = "```console\n$ koala up --detach\nJob 1 is done: ran 12s on A 4.\n```\n"
    assert console_blocks.refreshed(shown, tmp_path, run) == shown
    assert "0.3s on A 4" in console_blocks.refreshed(shown.replace("A 4", "A 3"), tmp_path, run)
    assert "0.3s" in console_blocks.refreshed(shown.replace("koala up", "koala"), tmp_path, run)


def test_shown_output_and_exit_codes_are_replaced_by_real_ones(tmp_path: Path) -> None:
    page = '```text title="said.txt"\nhello\n```\n\n```console\n$ cat said.txt; exit 3\nold\n$ echo $?\n0\n```\n'
    assert "$ cat said.txt; exit 3\nhello\n$ echo $?\n3\n" in console_blocks.refreshed(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    for link in links(page):
        target = link.partition("#")[0]
        if target and "://" not in link:
            assert (page.parent / target).exists(), f"{name_of(page)}: {link} leads nowhere"


@pytest.mark.parametrize("path", [*PAGES, *PICTURES], ids=name_of)
def test_nothing_is_fetched_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace(SVG_NAMESPACE, "")
    assert ADDRESS.findall(EXAMPLE_ADDRESS.sub("", text)) == []


def test_extras_are_installed_from_the_clone_and_are_there() -> None:
    """No package index has Koala: a command that asks one for it by name fails."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named: set[str] = set()
    for page in [*PAGES, *DOCS.rglob("*.ipynb")]:
        for what in re.findall(r"pip install ['\"]?([^\s'\"`]*)", page.read_text(encoding="utf-8")):
            assert what.startswith("."), f"{page}: pip install {what}"
            extras = what.strip(".[]").split(",")
            named.update(extra for extra in extras if extra not in ("", "...", "/papers"))
    assert len(named) > 5
    assert named <= set(known)


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        path = page.relative_to(DOCS).as_posix()
        assert path in navigation, f"docs/{path} is not in the navigation of mkdocs.yml"


def test_every_verb_and_every_exit_code_is_in_the_reference() -> None:
    from koala.cli import ELSEWHERE, VERBS, errors

    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    for verb in (*VERBS, *ELSEWHERE):
        assert f"## koala {verb}\n" in text
    for code in (0, *(value for name, value in vars(errors).items() if name.startswith("EXIT_"))):
        assert f"| {code} |" in text


def test_every_letter_of_the_papers_is_in_the_glossary() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    for word in ("JCT", "JST", "FTT", "L", "T", "S", "F", "claim", "barrier", "token", "earmark", "rest", "instant"):
        assert f"| **{word}** |" in text


def test_every_file_and_folder_that_the_architecture_page_names_is_there() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z0-9_]+/[a-z0-9_/]*(?:\.py)?)`", text)
    assert len(named) > 40
    missing = [name for name in named if not any((root / name).exists() for root in (ROOT, ROOT / "src" / "koala"))]
    assert missing == []
