"""What a lab wants of this machine, and what it says where that is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from koala.cli import koala
from koala.lab import LabError, LabOptions, gridftp, programs, record, requirements
from koala.lab.grid_engine import cell_files
from koala.lab.lab import plan_of


def test_missing_programs_are_named_with_the_packages_that_have_them(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "search_path", lambda: str(directory))
    monkeypatch.setattr(cell_files, "PROGRAMS_DIRECTORY", directory)
    with pytest.raises(LabError) as refused:
        requirements.check(plan_of(LabOptions(directory=directory, gridftp=True)))
    message = refused.value.for_user()
    assert "not installed here: munged, slurmctld, slurmd" in message
    assert "sge_qmaster" in message
    wanted = "slurmctld slurmd slurm-client munge gridengine-master gridengine-exec gridengine-client"
    assert message.endswith(f"apt install --no-install-recommends {wanted} globus-gridftp-server-progs")


def test_only_what_the_sites_need_is_wanted(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "search_path", lambda: str(directory))
    monkeypatch.setattr(cell_files, "PROGRAMS_DIRECTORY", directory)
    with pytest.raises(LabError) as refused:
        requirements.check_programs(plan_of(LabOptions(directory=directory, sites=("gamma",))))
    assert "slurm" not in refused.value.for_user()


@pytest.mark.skipif(os.geteuid() != 0, reason="only servers of root run as somebody else")
def test_a_file_server_of_root_needs_a_directory_that_all_may_enter(directory: Path) -> None:
    plan = plan_of(LabOptions(directory=directory, gridftp=True))
    directory.parent.chmod(0o700)
    with pytest.raises(LabError, match=f"nobody, who may not enter {directory.parent}; choose a directory"):
        gridftp.check(plan)
    directory.parent.chmod(0o755)
    gridftp.check(plan)


def test_bad_words_on_the_command_line_are_told_with_their_option(directory: Path) -> None:
    for words, told in (
        (["--wan", "fast"], "--wan fast: a link is written as"),
        (["--sites", "delta"], "there is no site 'delta'"),
        (["--nodes", "0"], "--nodes 0"),
    ):
        refused = CliRunner().invoke(koala, ["lab", "up", "--directory", str(directory), *words])
        assert (refused.exit_code, told in refused.output) == (2, True), refused.output


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\0", '{"version": 1}'])
def test_a_record_that_is_none_is_told_and_nothing_is_touched(directory: Path, text: str) -> None:
    directory.mkdir()
    (directory / record.FILE).write_text(text)
    for verb in ("up", "status", "down"):
        refused = CliRunner().invoke(koala, ["lab", verb, "--directory", str(directory)])
        assert refused.exit_code == 2, refused.output
        assert "lab.json" in refused.output
    assert (directory / record.FILE).read_text() == text
    (directory / record.FILE).unlink()


def test_one_call_at_a_time_works_on_a_directory(directory: Path) -> None:
    directory.mkdir()
    with record.alone(directory):
        refused = CliRunner().invoke(koala, ["lab", "up", "--directory", str(directory)])
    assert refused.exit_code == 1
    assert "another koala lab is at work on it" in refused.output
