"""What tests of the lab share: whether the real programs are there, free ports, jobs as users submit them, and a look
at this machine's processes that owes nothing to the lab's own.
"""

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
# Between those of single servers and those that the system gives to connections.
_FIRST_PORT, _LAST_PORT = 22_000, 32_000

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are for root")


def need_programs(options: LabOptions) -> None:
    """Skip the test where a program that these options need is missing; fail it where the variable CI is set."""
    try:
        requirements.check_programs(plan_of(options))
    except LabError as error:
        if os.environ.get("CI"):
            pytest.fail(error.for_user())
        pytest.skip(error.for_user())


def at_free_ports(options: LabOptions) -> LabOptions:
    """The same at ports that are free, and that no other process of a test run takes."""
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
    """LabOptions for a lab in a directory, at ports that are free, with all its programs there."""
    options = LabOptions(directory=directory, sites=sites, wan=wan, gridftp=gridftp)
    need_programs(options)
    return at_free_ports(options)


@contextlib.contextmanager
def taken_down(directory: Path) -> Iterator[None]:
    """Whatever a test does with a lab in this directory, nothing of it stays."""
    try:
        yield
    finally:
        if (directory / "lab.json").exists():
            down(directory)


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    """Look again and again until it holds, within bounds."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S:g} s"
        time.sleep(0.05)


def mentioning(directory: Path) -> list[str]:
    """The living processes that have anything to do with a directory: by their command, their environment, their
    working directory or their open files."""
    others = [home for home in Path("/proc").iterdir() if home.name.isdigit() and int(home.name) != os.getpid()]
    return [f"{home.name} {name}" for home in others if (name := _name_if_mentions(home, str(directory)))]


def _name_if_mentions(home: Path, directory: str) -> str:
    """The name of a process that lives and has to do with the directory; nothing if it has not, or has gone."""
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
    """Submit a job to a site's batch system, as its user would, and give its id."""
    work = str(lab.plan.site(site).work)
    words = ["sbatch", "--parsable", "--chdir", work, "--output", "out", "--open-mode=append"]
    if site == "gamma":
        words = ["qsub", "-terse", "-wd", work, "-o", "out", "-j", "y", "-S", "/bin/sh"]
    answer = lab.run(site, *words, *options, text=f"#!/bin/sh\n{text}\n")
    assert answer.code == 0, answer
    return answer.stdout.strip()


def output(lab: Lab, site: str) -> str:
    """What jobs at a site have printed."""
    path = lab.plan.site(site).work / "out"
    return path.read_text() if path.exists() else ""
