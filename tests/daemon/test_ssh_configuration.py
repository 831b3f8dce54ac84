"""A file that stands for ~/.ssh/config: whoever calls ssh on this machine uses it, and one that is not there is named
before anything is started.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from koala.daemon.grid_sites import check_ssh, this_machine
from koala.model.errors import InvalidError
from koala.model.grid import BatchSettings, Grid, Site
from koala.sites.remote_shell import SSH_CONFIG_VARIABLE, ssh_program


def grid(ssh: str | None) -> Grid:
    settings = BatchSettings(work_directory="/scratch/koala", ssh=ssh)
    return Grid(sites=(Site(name="alpha", processors=4, kind="slurm", batch=settings),))


def test_the_file_is_used_for_commands_and_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SSH_CONFIG_VARIABLE, raising=False)
    assert ssh_program() == ("ssh",)
    assert this_machine().ssh[:2] == ("ssh", "-o")
    named = tmp_path / "config"
    named.touch()
    monkeypatch.setenv(SSH_CONFIG_VARIABLE, str(named))
    check_ssh(grid("alpha-login"))
    assert ssh_program() == ("ssh", "-F", str(named))
    assert this_machine().ssh[:3] == ("ssh", "-F", str(named))
    assert ssh_program(tmp_path / "other") == ("ssh", "-F", str(tmp_path / "other"))


def test_a_file_below_the_home_directory_or_this_one_is_meant_wherever_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(SSH_CONFIG_VARIABLE, "~/clusters")
    assert ssh_program() == ("ssh", "-F", str(tmp_path / "clusters"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SSH_CONFIG_VARIABLE, "clusters")
    assert ssh_program() == ("ssh", "-F", str(tmp_path / "clusters"))


def test_one_that_is_not_there_is_named_where_a_site_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setenv(SSH_CONFIG_VARIABLE, str(missing))
    check_ssh(grid(None))
    with pytest.raises(InvalidError, match=f"{SSH_CONFIG_VARIABLE}: {missing}: No such file"):
        check_ssh(grid("alpha-login"))
