"""Where the client finds its daemon and its token, and what a wrong address is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from koala.client import WrongAddressError, default_state, find_address, find_token, parse_address
from koala.client.address import TOKEN_BYTES_MAX


def test_a_socket_and_a_url_are_addresses() -> None:
    socket = parse_address("unix:/run/koala.sock")
    assert (socket.socket, str(socket)) == (Path("/run/koala.sock"), "unix:/run/koala.sock")
    assert str(parse_address("unix:///run/koala.sock")) == "unix:/run/koala.sock"
    url = parse_address("https://grid.example:8443/")
    assert (url.socket, str(url)) == (None, "https://grid.example:8443")
    assert str(parse_address("http://[::1]:80")) == "http://[::1]:80"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("unix:", "names no socket"),
        ("/run/koala.sock", "write unix:/run/koala.sock"),
        ("ftp://host", "is not an address"),
        ("grid.example:80", "is not an address"),
        ("http://host:port", "is not an address"),
        ("http://host:99999", "is not an address"),
        ("http://me:secret@host", "more than a host and a port"),
        ("http://host/v1", "more than a host and a port"),
        ("", "is not an address"),
    ],
)
def test_what_is_no_address_is_refused_with_the_forms_there_are(text: str, told: str) -> None:
    with pytest.raises(WrongAddressError, match="unix:/") as caught:
        parse_address(text)
    assert told in caught.value.for_user()


@pytest.mark.parametrize(
    ("text", "local"),
    [("unix:/x", True), ("http://127.0.0.1:1", True), ("http://[::1]:1", True), ("http://localhost", True),
     ("http://10.0.0.1", False), ("https://grid.example", False)],
)  # fmt: skip
def test_only_addresses_of_this_machine_are_local(text: str, local: bool) -> None:
    assert parse_address(text).is_local is local


def test_the_address_is_the_given_one_then_the_environment_then_the_default_socket(tmp_path: Path) -> None:
    environment = {"KOALA_SERVER": "http://127.0.0.1:1", "XDG_STATE_HOME": str(tmp_path)}
    assert str(find_address("unix:/given", environment)) == "unix:/given"
    assert str(find_address(None, environment)) == "http://127.0.0.1:1"
    del environment["KOALA_SERVER"]
    assert str(find_address(None, environment)) == f"unix:{tmp_path}/koala/koala.sock"


def test_the_state_directory_ignores_a_relative_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = tmp_path / ".local" / "state" / "koala"
    assert default_state({}) == default_state({"XDG_STATE_HOME": "here"}) == expected


def test_the_token_is_found_in_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine"
    file.write_text("koala_file\n")
    assert find_token({"KOALA_TOKEN": "koala_env", "KOALA_TOKEN_FILE": str(file)}) == "koala_env"
    assert find_token({"KOALA_TOKEN_FILE": str(file)}) == "koala_file"
    home = tmp_path / "config"
    assert find_token({"XDG_CONFIG_HOME": str(home)}) is None
    (home / "koala").mkdir(parents=True)
    (home / "koala" / "token").write_text("koala_home\n")
    assert find_token({"XDG_CONFIG_HOME": str(home)}) == "koala_home"


@pytest.mark.parametrize("text", ["two words", "caf\u00e9", "", "\n", "x" * (TOKEN_BYTES_MAX + 1)])
def test_a_file_that_holds_no_token_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(WrongAddressError, match="this is not a token") as caught:
        find_token({"KOALA_TOKEN_FILE": str(file)})
    assert str(file) in caught.value.for_user()
    assert not text.strip() or text not in caught.value.for_user()


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongAddressError, match="there is no such file"):
        find_token({"KOALA_TOKEN_FILE": str(tmp_path / "none")})
