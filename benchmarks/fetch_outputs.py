"""How long 200 small outputs take to come here, at an embedded site and behind ssh: many at a time, as ``koala job
fetch`` has them, beside one after the other, as ``koala file get`` has each; both in one run, so that ratios count.

The site behind ssh is a cluster of the lab whose login host is an sshd on loopback; without the programs of the batch
systems only the embedded one is measured, and it is said.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

# The tests know how to start a daemon on a lab behind an sshd, and how to leave nothing behind.
sys.path.append(str(Path(__file__).parents[1]))

from tests.support.live_daemon import running_daemon
from tests.support.real_grid import SITES, real_grid, running_lab
from tests.support.ssh_server import ssh_server

from koala.client import Client

FILES = 200
COMPONENTS = 2
BYTES = 4_096
ROUNDS = 3
WAIT_S = 300.0
PATH = "/usr/lib/gridengine:/usr/local/bin:/usr/bin:/bin"


def made(client: Client, site: str) -> int:
    """A job that has made the files at this site."""
    each = FILES // COMPONENTS
    names = ", ".join(f"part-{number}" for number in range(each))
    script = f"for n in $(seq 0 {each - 1}); do head -c {BYTES} /dev/urandom >part-$n; done"
    component = f"{{processors: 1, site: {site}}}"
    job = client.submit(
        f"application: {{script: '{script}'}}\noutputs: [{names}]\ncomponents: [{component}, {component}]\n"
    ).job.id
    ended = client.wait_ended(job, timeout_s=WAIT_S)
    if ended.state != "done":
        raise SystemExit(f"job {job} did not make its files: {ended.state}, {ended.reason}")
    return job


def one_by_one_s(client: Client, job: int, home: Path) -> float:
    """Each file with a call of its own."""
    began = time.perf_counter()
    for output in client.each_output(job):
        client.fetch_file(output.name, home / str(output.part) / output.path)
    return time.perf_counter() - began


def together_s(client: Client, job: int, home: Path) -> float:
    """All of them, many at a time; their checksums are looked at again afterwards."""
    began = time.perf_counter()
    wanted = [(output, home / str(output.part) / output.path) for output in client.each_output(job)]
    problems = client.fetch_files(wanted)
    took_s = time.perf_counter() - began
    wrong = [path for info, path in wanted if hashlib.sha256(path.read_bytes()).hexdigest() != info.checksum]
    if problems or wrong or len(wanted) != FILES:
        raise SystemExit(f"{len(wanted)} files, {len(problems)} did not come, {len(wrong)} are wrong")
    return took_s


def measure(client: Client, site: str, home: Path) -> tuple[float, float]:
    """The medians of both ways, in turns."""
    job = made(client, site)
    single, many = [], []
    for number in range(ROUNDS):
        single.append(one_by_one_s(client, job, home / f"single-{number}"))
        many.append(together_s(client, job, home / f"many-{number}"))
    return sorted(single)[ROUNDS // 2], sorted(many)[ROUNDS // 2]


@contextlib.contextmanager
def behind_ssh(directory: Path) -> Iterator[Client]:
    """A daemon that has only the login hosts of its clusters."""
    with running_lab() as the_lab, ssh_server(directory / "ssh", [f"{site}-login" for site in SITES]) as server:
        sites = {
            site: {
                "ssh": f"{site}-login",
                "work_directory": str(directory / "homes" / site),
                "environment": {"PATH": PATH},
                "search_path": [str(Path(sys.executable).parent)],
            }
            for site in SITES
        }
        with real_grid(the_lab, directory, sites=sites, environment={"KOALA_SSH_CONFIG": str(server.config)}) as grid:
            yield grid.client


def main() -> None:
    """Measure and show."""
    directory = Path(tempfile.mkdtemp(prefix="koala-fetch-"))
    table = Table(title=f"{FILES} files of {BYTES} bytes, median of {ROUNDS}", title_justify="left")
    for column in ("site", "one by one s", "together s", "ratio"):
        table.add_column(column, justify="left" if column == "site" else "right", no_wrap=True)
    try:
        (directory / "near").mkdir()
        with running_daemon(directory / "near") as daemon:
            results = {"embedded": measure(daemon.client, "amsterdam", directory / "home-near")}
        if shutil.which("sbatch") and shutil.which("qsub", path=PATH):
            (directory / "far").mkdir()
            with behind_ssh(directory / "far") as client:
                results["behind ssh"] = measure(client, SITES[0], directory / "home-far")
        else:
            print("the programs of the batch systems are missing: the site behind ssh is left out", file=sys.stderr)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for site, (single_s, many_s) in results.items():
        table.add_row(site, f"{single_s:.2f}", f"{many_s:.2f}", f"{single_s / many_s:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
