"""Verbs of other distributions: found by their entry points, beside those of Koala and never instead of them."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from koala.cli import ELSEWHERE, GROUP, koala
from tests.support.paths import ROOT


@click.command()
@click.argument("word")
def shout(word: str) -> None:
    """Say it louder."""
    click.echo(word.upper())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, arguments)


def install(monkeypatch: pytest.MonkeyPatch, **verbs: str) -> None:
    """Let these entry points be all that are installed."""
    found = [EntryPoint(name, value, GROUP) for name, value in verbs.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found if group == GROUP else [])


def test_an_added_verb_runs_and_is_in_the_help_as_its_distribution_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "loud-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\nSummary: Say it louder.\n")
    (installed / "entry_points.txt").write_text(f"[{GROUP}]\nshout = {__name__}:shout\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert run("shout", "hello").stdout == "HELLO\n"
    assert "  shout       Say it louder." in run("--help").stdout


@pytest.mark.parametrize("verb", sorted(ELSEWHERE))
def test_a_verb_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    install(monkeypatch)
    done = run(verb, "list")
    assert done.exit_code == 2
    distribution, folder = ELSEWHERE[verb]
    words = (
        f"Error: koala {verb} comes with {distribution}, which is not installed; install it in a clone of Koala with:"
    )
    assert " ".join(done.stderr.split()) == f"{words} pip install {folder}"
    assert (ROOT / folder / "pyproject.toml").exists()
    assert verb not in run("--help").stdout


def test_an_added_verb_replaces_none_of_koala(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, policies=f"{__name__}:shout")
    assert "List the placement policies" in run("policies", "--help").stdout


@pytest.mark.parametrize("value", ["no_such_module:shout", f"{__name__}:whisper"])
def test_an_added_verb_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    install(monkeypatch, shout=value)
    done = run("shout", "hello")
    assert done.exit_code == 2
    assert f"koala shout: {value} cannot be loaded" in done.stderr
    assert run("--help").exit_code == 0


def test_an_unknown_verb_is_one_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    done = run("whisper")
    assert done.exit_code == 2
    assert "No such command 'whisper'" in done.stderr
