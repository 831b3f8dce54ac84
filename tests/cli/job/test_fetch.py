"""``koala job fetch`` and ``koala file get`` on a daemon that is killed in between."""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.live_cli import Shell
from tests.support.live_daemon import running_daemon, until

SIZE_BYTES = 9_000_000
SCRIPT = """\
while ! [ -e {go} ]; do sleep 0.3; done
head -c {size} /dev/zero | tr '\\0' x >result.h5
mkdir -p logs/deep
echo one >logs/deep/a
ln -s /etc/hosts logs/away
"""
TWO = "components: [{processors: 1}, {processors: 1}]\noutputs: [result.h5, logs/]"


def test_what_a_job_made_comes_home_also_when_the_daemon_is_killed(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon:
        koala = Shell(daemon.server)
        go = tmp_path / "go"
        job = koala.submit(tmp_path, SCRIPT.format(go=go, size=SIZE_BYTES), TWO)
        until(lambda: koala.json("job", "show", str(job), "--json")["state"] == "running", "the job runs")
        assert "add --wait" in koala("job", "fetch", str(job), code=2).stderr
        daemon.kill()
        go.touch()  # it ends while nobody looks
        daemon.start()
        home = tmp_path / "home"
        said = koala("job", "fetch", str(job), "--to", str(home), "--wait")
        assert "logs: away is left out" in said.stderr
        expected = hashlib.sha256(b"x" * SIZE_BYTES).hexdigest()
        for place in (home, home / "component-1"):
            assert hashlib.sha256((place / "result.h5").read_bytes()).hexdigest() == expected
            assert (place / "logs" / "deep" / "a").read_text() == "one\n"
            assert not (place / "logs" / "away").is_symlink()
        made = koala.json("job", "fetch", str(job), "--to", str(home), "--json")
        assert [(each["part"], each["path"]) for each in made] == [
            (0, "logs"),
            (0, "result.h5"),
            (1, "logs"),
            (1, "result.h5"),
        ]
        # What had come before an interruption is not asked for again; what is wrong of it is found.
        name = f"jobs/{job}.1/result.h5"
        part = home / f".copy.{expected[:16]}.part"
        part.write_bytes(b"x" * (SIZE_BYTES - 5))
        koala("file", "get", name, "--to", str(home / "copy"))
        assert (home / "copy").stat().st_size == SIZE_BYTES
        part.write_bytes(b"y" * (SIZE_BYTES - 5))
        assert "not what the catalogue knows" in koala("file", "get", name, "--to", str(home / "copy"), code=1).stderr
        assert not part.exists()
        assert "no file" in koala("file", "get", "jobs/99/x", code=2).stderr
        plain = koala.submit(tmp_path, "exit 0")
        told = " ".join(koala("job", "fetch", str(plain), "--wait", code=2).stderr.split())
        assert "has no outputs" in told
        assert "#KOALA --outputs" in told


@pytest.mark.parametrize("target", ["/dev/null/x"])
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, target: str) -> None:
    from koala.client.errors import InvalidError
    from koala.client.fetching import unpack

    with pytest.raises(InvalidError, match="--to"):
        unpack(tmp_path / "archive", Path(target))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there every tarfile judges its entries")
def test_a_python_whose_tarfile_judges_no_entry_unpacks_plain_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of Debian 12."""
    from koala.client.fetching import unpack

    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    place, outside = tmp_path / "place", tmp_path / "outside"
    place.mkdir()
    outside.mkdir()
    (place / "door").symlink_to(outside)
    archive = tmp_path / "archive"
    with tarfile.open(archive, "w") as tar:
        for name, kind in (
            ("logs", tarfile.DIRTYPE),
            ("logs/a", tarfile.REGTYPE),
            ("../outside/b", tarfile.REGTYPE),
            (str(outside / "c"), tarfile.REGTYPE),
            ("door/d", tarfile.REGTYPE),
            ("link", tarfile.SYMTYPE),
            ("hard", tarfile.LNKTYPE),
            ("pipe", tarfile.FIFOTYPE),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.linkname, entry.uid = kind, 0o6777, "logs/a", 12_345
            tar.addfile(entry)
    assert unpack(archive, place) == ["../outside/b", str(outside / "c"), "door/d", "link", "hard", "pipe"]
    assert sorted(each.name for each in place.rglob("*")) == ["a", "door", "logs"]
    assert list(outside.iterdir()) == []
    made = (place / "logs" / "a").stat()
    assert (made.st_mode & 0o7777, made.st_uid) == (0o755, os.getuid())
    assert not archive.exists()
