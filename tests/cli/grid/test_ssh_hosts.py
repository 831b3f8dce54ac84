"""The hosts of an ssh configuration: names without wildcards, files that are included, and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from koala.cli.errors import UserError
from koala.cli.grid.command import (
    SSH_FILE_BYTES_MAX,
    SSH_FILES_MAX,
    SSH_HOSTS_MAX,
    SSH_INCLUDES_DEEP_MAX,
    ssh_hosts,
)


def hosts(directory: Path, text: str) -> list[str]:
    config = directory / "config"
    config.write_text(text)
    return ssh_hosts(config)


def test_names_are_taken_in_order_and_once(tmp_path: Path) -> None:
    text = """
    # Host commented
    Host alpha beta  # the big ones
      HostName alpha.example
    host=gamma
    HOST = "delta"
    Host beta *.example !nope old? epsilon
    Match host zeta
    Host -oProxyCommand=x
    Host "not closed
    """
    assert hosts(tmp_path, text) == ["alpha", "beta", "gamma", "delta", "epsilon"]


def test_includes_are_followed_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "1").write_text("Host one\n")
    (tmp_path / "more" / "2").write_text("Host two\nInclude more/1\n")
    text = f"Host first\nInclude more/* not-there {tmp_path}/more/2\nHost last\n"
    assert hosts(tmp_path, text) == ["first", "one", "two", "last"]


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="SSH_INCLUDES_DEEP_MAX") as caught:
        hosts(tmp_path, "Include config\n")
    assert str(SSH_INCLUDES_DEEP_MAX) in caught.value.message


def test_the_number_of_files_is_limited(tmp_path: Path) -> None:
    for number in range(SSH_FILES_MAX):
        (tmp_path / f"part{number}").write_text("Host one\n")
    with pytest.raises(UserError, match="SSH_FILES_MAX"):
        hosts(tmp_path, "Include part*\n")
    (tmp_path / "part0").unlink()
    assert hosts(tmp_path, "Include part*\n") == ["one"]


def test_the_number_of_hosts_is_limited(tmp_path: Path) -> None:
    lines = "".join(f"Host h{number}\n" for number in range(SSH_HOSTS_MAX))
    assert len(hosts(tmp_path, lines)) == SSH_HOSTS_MAX
    with pytest.raises(UserError, match="SSH_HOSTS_MAX"):
        hosts(tmp_path, f"{lines}Host one-more\n")


def test_the_size_of_a_file_is_limited(tmp_path: Path) -> None:
    filled = "Host a\n" + "#" * (SSH_FILE_BYTES_MAX - len("Host a\n"))
    assert hosts(tmp_path, filled) == ["a"]
    with pytest.raises(UserError, match="SSH_FILE_BYTES_MAX"):
        hosts(tmp_path, f"{filled}#")
