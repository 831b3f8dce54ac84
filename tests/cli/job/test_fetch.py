"""``koala job fetch`` and ``koala file get`` on a daemon that is killed in between."""

from __future__ import annotations

import hashlib
from pathlib import Path

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
# More than one answer brings.
STREAM_BYTES = 1_300_000
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
        assert [(each["part"], each.get("path", each.get("stream"))) for each in made] == [
            (0, "logs"),
            (0, "result.h5"),
            (1, "logs"),
            (1, "result.h5"),
            (0, "stdout"),
            (0, "stderr"),
            (1, "stdout"),
            (1, "stderr"),
        ]
        # What had come before an interruption is not asked for again; what is wrong of it is found.
        name = f"jobs/{job}.1/result.h5"
        part = home / f".copy.{expected[:16]}.part"
        part.write_bytes(b"x" * (SIZE_BYTES - 5))
        koala("file", "get", name, "--to", str(home / "copy"))
        assert (home / "copy").stat().st_size == SIZE_BYTES
        part.write_bytes(b"y" * (SIZE_BYTES - 5))
        assert "differs from the catalogue" in koala("file", "get", name, "--to", str(home / "copy"), code=1).stderr
        assert not part.exists()
        assert "no file" in koala("file", "get", "jobs/99/x", code=2).stderr
        plain = koala.submit(tmp_path, "exit 0")
        told = " ".join(koala("job", "fetch", str(plain), "--to", str(tmp_path / "plain"), "--wait").stderr.split())
        assert "has no outputs" in told
        assert "#KOALA --outputs" in told


def test_the_small_outputs_of_an_array_come_below_their_indices_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon:
        koala = Shell(daemon.server)
        script = "echo $KOALA_ARRAY_INDEX >a; mkdir d; echo deep >d/e; echo says $KOALA_ARRAY_INDEX"
        array = koala.submit(tmp_path, script, "array: 4-6\nprocessors: 1\noutputs: [a, d]")
        home = tmp_path / "home"
        koala("job", "fetch", str(array), "--to", str(home), "--wait")
        expected = {"a": "{}\n", "d/e": "deep\n", "stdout.txt": "says {}\n", "stderr.txt": ""}
        assert {str(each.relative_to(home)): each.read_text() for each in home.rglob("*") if each.is_file()} == {
            f"{index}/{name}": text.format(index) for index in (4, 5, 6) for name, text in expected.items()
        }
        (replica,) = daemon.state.rglob(f"replicas/=jobs%2F{array + 2}%2Fa")
        replica.unlink()
        koala("job", "fetch", str(array), "--to", str(home))  # what is here and right is not asked for
        (home / "5" / "a").unlink()
        said = koala("job", "fetch", str(array), "--to", str(home), code=1)
        assert f"jobs/{array + 2}/a was not fetched" in said.stderr
        assert "Job 1: 5 outputs" in said.output


def test_what_the_components_of_a_job_wrote_comes_with_what_they_made(tmp_path: Path) -> None:
    """Of a job that failed, too, and in pieces; an output of the same name is the job's own."""
    with running_daemon(tmp_path) as daemon:
        koala = Shell(daemon.server)
        script = f"echo trouble $KOALA_COMPONENT >&2; head -c {STREAM_BYTES} /dev/zero | tr '\\0' x; exit 3"
        failed = koala.submit(tmp_path, script, "components: [{processors: 1}, {processors: 1}]\nnever_on: [3]")
        home = tmp_path / "home"
        said = koala("job", "fetch", str(failed), "--to", str(home), "--wait", code=1)
        assert f"The outputs are incomplete: job {failed} failed" in " ".join(said.stderr.split())
        for part, place in enumerate((home, home / "component-1")):
            assert (place / "stderr.txt").read_text() == f"trouble {part}\n"
            assert (place / "stdout.txt").read_text() == "x" * STREAM_BYTES
        own = koala.submit(tmp_path, "echo mine >stdout.txt; echo said", "processors: 1\noutputs: [stdout.txt]")
        assert "1 output and 1 stream in" in koala("job", "fetch", str(own), "--to", str(home), "--wait").stdout
        assert (home / "stdout.txt").read_text() == "mine\n"
        (home / "full").touch()
        problem = koala("job", "fetch", str(failed), "--to", str(home / "full"), code=1).stderr
        assert "full" in problem


def test_what_a_job_made_is_forgotten_at_once_and_not_while_a_job_waits_for_it(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon:
        koala = Shell(daemon.server)
        array = koala.submit(tmp_path, "touch a b", "array: 1-2\nprocessors: 1\noutputs: [a, b]")
        koala("job", "wait", str(array))
        name = f"jobs/{array + 2}/a"
        reader = koala.submit(
            tmp_path, "cat a", f"processors: 1\nhold: true\ninput_files: [{{name: {name}, path: a}}]"
        )
        told = " ".join(koala("file", "forget", f"jobs/{array}", code=2).stderr.split())
        assert "4 files, 0 bytes: " in told
        assert f"Job {reader} waits for it. Nothing was forgotten: give --force" in told
        assert "--force" in koala("file", "forget", "jobs/*/a", "--yes", code=2).stderr
        told = " ".join(koala("file", "forget", "jobs/*/b", code=2).stderr.split())
        assert "2 files" in told
        assert "Give --all" in told
        assert koala("file", "forget", "jobs/*/b", "--yes").stdout == "Forgot 2 files.\n"
        gone = koala.json("file", "forget", f"jobs/{array}", "--all", "--force")
        assert gone == {"forgotten": [f"jobs/{array + 1}/a", name]}
        told = koala("job", "fetch", str(array), "--to", str(tmp_path / "late")).stderr
        assert "no outputs any more: they were forgotten" in " ".join(told.split())
        assert "no file" in koala("file", "show", name, code=2).stderr
        koala("job", "wait", str(reader), code=1)
        assert koala.json("job", "show", str(reader))["state"] == "cancelled"
