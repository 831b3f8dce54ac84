"""A lab: real batch systems on this machine, brought up, used and taken down.

``up`` brings up the whole lab or leaves nothing. ``Lab`` is a running lab, even after the process that started it has
ended. ``down`` ends exactly the processes of the lab, whatever its state.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from koala.lab import grid_file, gridftp, leftovers, programs, record, requirements
from koala.lab.daemons import Daemons
from koala.lab.errors import LabError, LabFailedError, LabIsUpError
from koala.lab.grid_engine import cell
from koala.lab.network import namespaces
from koala.lab.options import SITE_NAMES, LabOptions, LabSystem, PairOfSites, check, default_directory, differing
from koala.lab.plan import LabPlan, SitePlan, plan_lab
from koala.lab.record import LabRecord, Recorder
from koala.lab.slurm import cluster, munge
from koala.sites import processes

Say = Callable[[str], None]
_STOP_S = 20.0


class SiteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one site. ``up`` is True if its controller answers; ``dead`` names its daemons that have died.

    ``jobs`` counts those that wait or run, None without an answer. Other sites reach it at ``address``.
    """

    name: str
    kind: LabSystem
    batch_system: str
    up: bool
    dead: tuple[str, ...]
    processors: int
    jobs: int | None
    address: str
    work_directory: str
    file_server: str | None


class LabStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a lab. ``dead`` names the dead daemons that belong to no site. ``up`` is True if the whole lab can
    be used, ``gone`` if none of its daemons lives."""

    directory: str
    grid_file: str
    up: bool
    complete: bool
    gone: bool
    dead: tuple[str, ...]
    sites: tuple[SiteStatus, ...]


class Lab:
    """A lab, running or not: every answer comes from its directory and from the machine."""

    def __init__(self, plan: LabPlan, recorder: Recorder) -> None:
        self.plan = plan
        self.daemons = Daemons(plan, recorder)
        self._recorder = recorder

    @property
    def grid_file(self) -> Path:
        """The grid file for ``koala up --grid``."""
        return self.plan.grid_file

    @property
    def record(self) -> LabRecord:
        """Its options and its daemons."""
        return self._recorder.record

    def environment(self, site: str) -> dict[str, str]:
        """Return the environment for commands of the site's batch system."""
        return grid_file.client_environment(self.plan.site(site))

    def command(self, site: str, *words: str) -> list[str]:
        """Return a command as it runs at a site: in its namespace, if it has one."""
        return [*self.plan.site(site).through, *words]

    def full_environment(self, site: str, own: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a site's user: ``own`` without variables of other batch systems, plus the
        site's."""
        kept = {name: value for name, value in own.items() if not name.startswith(("SLURM_", "SGE_"))}
        return {**kept, "PATH": programs.search_path(), **self.environment(site)}

    def run(
        self, site: str, *words: str, text: str | None = None, timeout_s: float = programs.TIMEOUT_S
    ) -> programs.ProgramResult:
        """Run a command at a site to its end, with the site's environment and without other batch systems'
        variables."""
        return programs.run(self.command(site, *words), self.environment(site), text=text, timeout_s=timeout_s)

    def stop_controller(self, site: str, *, by_force: bool = False) -> None:
        """Stop slurmctld or qmaster; jobs run on. It saves its state first, unless ``by_force`` is set."""
        self._stop(_controller(self.plan.site(site)), by_force=by_force)

    def start_controller(self, site: str) -> None:
        """Restart the controller after it was stopped or has died; return when it answers."""
        plan = self.plan.site(site)
        if not self.daemons.is_alive(_controller(plan)):
            self.daemons.start_again(_controller(plan))
        _wait(plan, self.plan, self.daemons, [_controller(plan)])

    def change_link(self, pair: PairOfSites) -> None:
        """Give the link between two sites another rate, delay and loss during operation. Packets on their way are
        lost, and TCP sends them again. The grid file stays unchanged. Raises LabError without a wide area."""
        before = self.record.options
        if before.wan is None:
            raise LabError("the lab has no emulated links to change; make one with koala lab up --wan LINK")
        others = tuple(each for each in before.links if set(each.between) != set(pair.between))
        options = msgspec.structs.replace(before, links=(*others, pair))
        check(options)
        with record.alone(options.directory):
            self.plan = plan_of(options)
            self._recorder.change(options)
            self._stop(namespaces.NAME, by_force=True)
            namespaces.prepare_again(self.plan)
            self.daemons.start_again(namespaces.NAME)
            namespaces.wait(self.plan, self.daemons)

    def kill_site(self, site: str) -> None:
        """Kill the site's daemons and all processes of its jobs at once, as a power failure would."""
        names = [each.name for each in self.record.daemons if each.site == site]
        leftovers.end_site(self.plan.directory, self.environment(site), names)

    def start_site(self, site: str) -> None:
        """Restart the site's daemons after they were killed; return when it accepts jobs."""
        plan = self.plan.site(site)
        dead = _dead(self, site)
        for name in dead:
            self.daemons.start_again(name)
        _wait(plan, self.plan, self.daemons, dead)

    def down(self) -> None:
        """End all processes of the lab, and remove its files."""
        down(self.plan.directory)

    def _stop(self, name: str, *, by_force: bool) -> None:
        process = next(each.process for each in self.record.daemons if each.name == name)
        with contextlib.suppress(ProcessLookupError):
            if processes.is_alive(process):
                os.kill(process.pid, signal.SIGKILL if by_force else signal.SIGTERM)
        if not programs.wait_until(lambda: not self._lives(process), _STOP_S):
            raise LabFailedError(f"{name}: it did not stop within {_STOP_S:g} seconds")

    @staticmethod
    def _lives(process: processes.Identity) -> bool:
        processes.has_left(processes.Child(process.pid))  # a child of this process would stay a zombie
        return processes.is_alive(process)


def up(options: LabOptions, say: Say | None = None) -> Lab:
    """Bring a lab up, and report each step to ``say``.

    Raises LabIsUpError if it is up already. If daemons of a running lab have died, they are restarted. A lab that was
    never complete, or is older than the last boot of the machine, is removed first. A lab that cannot be brought up
    leaves nothing behind; LabError has the reason.
    """
    check(options)
    say = say or _say_nothing
    plan = plan_of(options)
    with _directory(options.directory):
        _check_owner(options.directory)
        before = record.read(options.directory)
        if before is not None and before.complete and leftovers.lab_processes(options.directory):
            return _revived(before, options, say)
        if before is not None:
            say("removing what is left of a lab that has died")
            _remove(options.directory, before.options)
        _check_empty(options.directory)
        requirements.check(plan)
        recorder = Recorder(LabRecord(options=options))
        recorder.write()
        try:
            return _started(plan, recorder, say)
        except BaseException:
            _remove(options.directory, options)
            raise


def down(directory: Path, *, keep: bool = False) -> int:
    """End the processes of the lab in a directory, whatever its state, and return how many there were.

    Its files are removed too, unless they are kept; then the next ``up`` removes them. Raises LabError if there is no
    lab.
    """
    if not (directory / record.FILE).exists():
        raise LabError(f"{directory}: there is no lab here; koala lab up makes one")
    _check_owner(directory)
    with record.alone(directory):
        found = record.read(directory)
        ended = _remove(directory, found.options if found is not None else None, keep=keep)
        with contextlib.suppress(OSError):  # it contains kept files, or something of its owner
            directory.rmdir()
    return ended


def down_command(directory: Path) -> str:
    """Return the command that takes down the lab in a directory."""
    where = "" if directory == default_directory() else f" --directory {directory}"
    return f"koala lab down{where}"


def find(directory: Path) -> Lab | None:
    """Return the lab in a directory, running or not; None if there is none."""
    found = record.read(directory)
    if found is None:
        return None
    return Lab(plan_of(found.options), Recorder(found))


def status(lab: Lab) -> LabStatus:
    """Return the state of a lab as its batch systems report it; all sites are queried at once."""
    with ThreadPoolExecutor(max_workers=len(lab.plan.sites)) as pool:
        sites = tuple(pool.map(lambda site: _site_status(lab, site), lab.plan.sites))
    dead = _dead(lab, None)
    return LabStatus(
        directory=str(lab.plan.directory),
        grid_file=str(lab.grid_file),
        up=lab.record.complete and not dead and all(site.up and not site.dead for site in sites),
        complete=lab.record.complete,
        gone=not any(processes.is_alive(each.process) for each in lab.record.daemons),
        dead=dead,
        sites=sites,
    )


def _site_status(lab: Lab, site: SitePlan) -> SiteStatus:
    system = cluster if site.kind is LabSystem.SLURM else cell
    # Nobody answers for a controller that is dead, and its clients would wait.
    dead = _dead(lab, site.name)
    jobs = system.jobs(site) if system.controller(site) not in dead else None
    return SiteStatus(
        name=site.name,
        kind=site.kind,
        batch_system=system.version(site),
        up=jobs is not None,
        dead=dead,
        processors=site.processors,
        jobs=jobs,
        address=site.address,
        work_directory=str(site.work),
        file_server=site.file_server if lab.plan.options.gridftp else None,
    )


def _dead(lab: Lab, site: str | None) -> tuple[str, ...]:
    daemons = [each for each in lab.record.daemons if each.site == site]
    return tuple(each.name for each in daemons if not processes.is_alive(each.process))


def plan_of(options: LabOptions) -> LabPlan:
    """Return the plan for these options, on this machine and for this user."""
    host = socket.gethostname()
    try:
        address = socket.gethostbyname(host)
    except OSError:
        address = None
    return plan_lab(options, _user_name(os.geteuid()), host.partition(".")[0], address)


def _say_nothing(words: str) -> None:
    del words


@contextlib.contextmanager
def _directory(directory: Path) -> Iterator[None]:
    """Make the directory if it is missing, and hold it; remove it if it is empty in the end."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise LabError(f"--directory {directory}: it is a file; choose another name") from None
    with record.alone(directory):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                directory.rmdir()


def _check_owner(directory: Path) -> None:
    """Raise LabError for another user's lab, whose processes only root can see."""
    owner = directory.stat().st_uid
    if os.geteuid() not in (0, owner):
        raise LabError(f"{directory}: it belongs to the user {_user_name(owner)}; do this as that user, or as root")


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _check_empty(directory: Path) -> None:
    if any(directory.iterdir()):
        raise LabError(f"--directory {directory}: it contains something other than a lab; choose one that is empty")


def _revived(before: LabRecord, options: LabOptions, say: Say) -> Lab:
    """Return a running lab, with its dead daemons restarted."""
    plan = plan_of(before.options)
    lab = Lab(plan, Recorder(before))
    dead = [each.name for each in before.daemons if not processes.is_alive(each.process)]
    if not dead:
        others = ", ".join(differing(before.options, options))
        advice = f", with another {others}; take it down first with: {down_command(options.directory)}"
        raise LabIsUpError(f"the lab in {options.directory} is up already{advice if others else ''}", same=not others)
    for name in dead:
        say(f"{name}: it has died; starting it again")
        if name == namespaces.NAME:
            namespaces.prepare_again(plan)
        lab.daemons.start_again(name)
    if plan.options.wan is not None:
        namespaces.wait(plan, lab.daemons)
    if plan.has_slurm:
        munge.wait(plan, lab.daemons)
    for site in plan.sites:
        _wait(site, plan, lab.daemons, dead)
    return lab


def _started(plan: LabPlan, recorder: Recorder, say: Say) -> Lab:
    daemons = Daemons(plan, recorder)
    if plan.options.wan is not None:
        namespaces.start(plan, daemons)
        say("network: a namespace for each site, and the links between them")
    plan.grid_file.write_text(grid_file.grid_text(plan), encoding="utf-8")
    with ThreadPoolExecutor(max_workers=len(plan.sites) + 1) as pool:
        munged = pool.submit(munge.start, plan, daemons) if plan.has_slurm else None

        def bring_up(site: SitePlan) -> None:
            begun = time.monotonic()
            if site.kind is LabSystem.SLURM and munged is not None:
                munged.result()
            _start(site, plan, daemons)
            took = time.monotonic() - begun
            say(f"{site.name}: {_version(site)} with {site.processors} processors is up ({took:.1f} s)")

        sites = [pool.submit(bring_up, site) for site in plan.sites]
        problems = [problem for each in sites if (problem := each.exception()) is not None]
    if problems:
        raise problems[0]
    recorder.complete()
    return Lab(plan, recorder)


def _start(site: SitePlan, plan: LabPlan, daemons: Daemons) -> None:
    if site.kind is LabSystem.SLURM:
        cluster.start(site, plan, daemons)
    else:
        cell.start(site, plan, daemons)
    if plan.options.gridftp:
        gridftp.start(site, daemons)


def _wait(site: SitePlan, plan: LabPlan, daemons: Daemons, started: Sequence[str]) -> None:
    """Until those daemons of a site that were started again do their work; what its user drained stays drained."""
    if site.kind is LabSystem.SLURM:
        cluster.wait(site, cluster.nodes_of(site, plan, started), daemons)
    elif cell.executor(site) in started:
        cell.wait(site, daemons)
    else:
        cell.wait_for_controller(site, daemons)
    if gridftp.name_of(site) in started:
        gridftp.wait(site, daemons)


def _version(site: SitePlan) -> str:
    return cluster.version(site) if site.kind is LabSystem.SLURM else cell.version(site)


def _controller(site: SitePlan) -> str:
    return cluster.controller(site) if site.kind is LabSystem.SLURM else cell.controller(site)


def _remove(directory: Path, options: LabOptions | None, *, keep: bool = False) -> int:
    """End all processes, remove namespaces and files. Other contents of the directory stay."""
    ended = leftovers.end(directory)
    if options is not None and options.wan is not None:
        namespaces.remove(plan_of(options))
    if keep:
        return ended
    for name in (*SITE_NAMES, "munge", "spool", "daemons"):
        if (directory / name).is_dir():
            shutil.rmtree(directory / name)
    for name in ("grid.yaml", record.FILE):
        (directory / name).unlink(missing_ok=True)
    return ended
