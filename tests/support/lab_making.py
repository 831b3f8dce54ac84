"""The common part of tests of the lab: checks for the real programs, free ports, jobs as users submit them, and a
view of this machine's processes that is independent of the lab's own."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from koala.lab import Lab, LabError, LabOptions, WideAreaLink, down, requirements
from koala.lab.lab import plan_of
from koala.lab.options import PORTS
from tests.support.ports import keep_block

WAIT_S = 120.0
# Between the ports of single servers and those that the system gives to connections.
_FIRST_PORT, _LAST_PORT = 22_000, 32_000

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are for root")


def need_programs(options: LabOptions) -> None:
    """Skip the test if a program for these options is missing; fail it where the variable CI is set."""
    try:
        requirements.check_programs(plan_of(options))
    except LabError as error:
        if os.environ.get("CI"):
            pytest.fail(error.for_user())
        pytest.skip(error.for_user())


def at_free_ports(options: LabOptions) -> LabOptions:
    """Return the same options with free ports that no other process of a test run takes."""
    for port in range(_FIRST_PORT, _LAST_PORT, PORTS):
        found = msgspec.structs.replace(options, first_port=port)
        with contextlib.suppress(LabError):
            if keep_block(port):
                requirements.check(plan_of(found))
                return found
    pytest.fail("there are no free ports for a lab")


def options_in(
    directory: Path,
    *,
    sites: tuple[str, ...] = ("alpha", "beta", "gamma"),
    wan: WideAreaLink | None = None,
    gridftp: bool = False,
) -> LabOptions:
    """Return LabOptions for a lab in a directory, at free ports, after a check that all its programs are
    installed."""
    options = LabOptions(directory=directory, sites=sites, wan=wan, gridftp=gridftp)
    need_programs(options)
    return at_free_ports(options)


@contextlib.contextmanager
def taken_down(directory: Path) -> Iterator[None]:
    """Take down whatever lab a test leaves in this directory."""
    try:
        yield
    finally:
        if (directory / "lab.json").exists():
            down(directory)


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    """Poll until the condition holds, within bounds."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S:g} s"
        time.sleep(0.05)


def mentioning(directory: Path) -> list[str]:
    """Return the living processes that involve a directory: by their command, environment, working directory or open
    files."""
    others = [home for home in Path("/proc").iterdir() if home.name.isdigit() and int(home.name) != os.getpid()]
    return [f"{home.name} {name}" for home in others if (name := _name_if_mentions(home, str(directory)))]


def _name_if_mentions(home: Path, directory: str) -> str:
    """Return the name of a living process that involves the directory; empty for any other."""
    try:
        name = (home / "comm").read_text()
        if (home / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX":
            return ""
        texts = [(home / file).read_text(errors="replace") for file in ("cmdline", "environ")]
        texts += [str(each.readlink()) for each in (home / "cwd", *(home / "fd").iterdir())]
    except OSError:
        return ""
    return name if any(directory in text for text in texts) else ""


def submit(lab: Lab, site: str, text: str, *options: str) -> str:
    """Submit a job to a site's batch system, as its user would; return its id."""
    work = str(lab.plan.site(site).work)
    words = ["sbatch", "--parsable", "--chdir", work, "--output", "out", "--open-mode=append"]
    if site == "gamma":
        words = ["qsub", "-terse", "-wd", work, "-o", "out", "-j", "y", "-S", "/bin/sh"]
    answer = lab.run(site, *words, *options, text=f"#!/bin/sh\n{text}\n")
    assert answer.code == 0, answer
    return answer.stdout.strip()


def output(lab: Lab, site: str) -> str:
    """Return the output of jobs at a site."""
    path = lab.plan.site(site).work / "out"
    return path.read_text() if path.exists() else ""
