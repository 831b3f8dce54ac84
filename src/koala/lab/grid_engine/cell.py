"""The Grid Engine cell of a lab: made without its installer, started from its files, and queried for its state."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from koala.lab import programs
from koala.lab.daemons import Daemons
from koala.lab.errors import LabFailedError
from koala.lab.grid_engine import cell_files
from koala.lab.plan import LabPlan, SitePlan

SHARED_DIRECTORY = Path("/usr/share/gridengine")
PROGRAMS = ("qconf", "qhost", "qstat", "qsub", "qdel")
_DAEMON_PROGRAMS = ("sge_qmaster", "sge_execd", "sge_shepherd", "spoolinit", "spooldefaults")
_ASK_S = 5.0
# Without this the daemons would move to the background, and their processes would not be known.
_FOREGROUND = {"SGE_ND": "1"}


def missing_programs() -> list[str]:
    """Return the programs that are not installed where the packages put them."""
    missing = [name for name in PROGRAMS if programs.find(name) is None]
    return missing + [name for name in _DAEMON_PROGRAMS if not (cell_files.PROGRAMS_DIRECTORY / name).exists()]


def controller(site: SitePlan) -> str:
    """Return the name of the controlling daemon."""
    return f"{site.name}-qmaster"


def executor(site: SitePlan) -> str:
    """Return the name of the daemon that runs jobs."""
    return f"{site.name}-execd"


def start(site: SitePlan, plan: LabPlan, daemons: Daemons) -> None:
    """Start the cell; return when its queue accepts jobs."""
    site.work.mkdir(parents=True)
    cell_files.temporary(site).mkdir()
    _make_root(site, plan)
    _make_state(site, plan)
    daemons.start(
        controller(site), [str(cell_files.PROGRAMS_DIRECTORY / "sge_qmaster")], site, _daemon_environment(site)
    )
    wait_for_controller(site, daemons)
    templates = cell_files.root(site) / "templates"
    texts = (("-Aq", "queue", cell_files.queue(site)), ("-Msconf", "scheduler", cell_files.scheduler()))
    for option, name, text in texts:
        (templates / name).write_text(text, encoding="utf-8")
        programs.must_run([*site.through, "qconf", option, str(templates / name)], cell_files.environment(site))
    daemons.start(executor(site), [str(cell_files.PROGRAMS_DIRECTORY / "sge_execd")], site, _daemon_environment(site))
    wait(site, daemons)


def wait_for_controller(site: SitePlan, daemons: Daemons) -> None:
    """Wait until the controller accepts commands. Raises LabFailedError with its output if that takes too long."""
    name = controller(site)
    programs.wait_until(lambda: answers(site) or not daemons.is_alive(name), programs.START_S_MAX)
    if not (daemons.is_alive(name) and answers(site)):
        raise LabFailedError(f"{site.name}: its Grid Engine cell did not start: {_said(site, daemons, name)}")


def wait(site: SitePlan, daemons: Daemons) -> None:
    """Wait until the queue accepts jobs."""
    wait_for_controller(site, daemons)
    name = executor(site)
    programs.wait_until(lambda: _queue_is_usable(site) or not daemons.is_alive(name), programs.START_S_MAX)
    if not (daemons.is_alive(name) and _queue_is_usable(site)):
        raise LabFailedError(f"{site.name}: its execution daemon did not start: {_said(site, daemons, name)}")


def answers(site: SitePlan) -> bool:
    """Return True if the controller accepts commands."""
    return _ask(site, "qconf", "-sh").code == 0


def version(site: SitePlan) -> str:
    """Return name and version, such as Grid Engine 8.1.9."""
    first = programs.run(["qstat", "-help"], cell_files.environment(site)).stdout.partition("\n")[0]
    return "Grid Engine " + (first.split() or ["?"])[-1]


def jobs(site: SitePlan) -> int | None:
    """Return how many jobs wait or run; None if there is no answer."""
    answer = _ask(site, "qstat", "-u", "*", "-xml")
    if answer.code != 0:
        return None
    try:
        return len(ElementTree.fromstring(answer.stdout).findall(".//job_list"))  # noqa: S314 - the lab's own cell
    except ElementTree.ParseError:
        return None


def _daemon_environment(site: SitePlan) -> dict[str, str]:
    return {**cell_files.environment(site), **_FOREGROUND, "LD_LIBRARY_PATH": str(cell_files.PROGRAMS_DIRECTORY)}


def _make_root(site: SitePlan, plan: LabPlan) -> None:
    """Make a directory tree like the installer's, with links to the programs."""
    root = cell_files.root(site)
    architecture = programs.must_run([str(SHARED_DIRECTORY / "util" / "arch")]).strip()
    for name in ("bin", "lib", "utilbin"):
        (root / name).mkdir(parents=True)
        (root / name / architecture).symlink_to(cell_files.PROGRAMS_DIRECTORY)
    (root / "util").symlink_to(SHARED_DIRECTORY / "util")
    for directory in (cell_files.common(site), cell_files.spool(site) / "qmaster", cell_files.spool(site) / "execd"):
        directory.mkdir(parents=True)
    for name, text in cell_files.cell_files(site, plan).items():
        (cell_files.common(site) / name).write_text(text, encoding="utf-8")


def _make_state(site: SitePlan, plan: LabPlan) -> None:
    """Make the state of a new cell: its configuration, its host and its parallel environment."""
    templates = cell_files.root(site) / "templates"
    texts = {
        "configuration": cell_files.configuration(site),
        f"adminhosts/{cell_files.HOST}": cell_files.host_entry(),
        f"submithosts/{cell_files.HOST}": cell_files.host_entry(),
        f"exechosts/{cell_files.HOST}": cell_files.execution_host(site),
        f"pes/{cell_files.PARALLEL_ENVIRONMENT}": cell_files.parallel_environment(),
    }
    for name, text in texts.items():
        (templates / name).parent.mkdir(parents=True, exist_ok=True)
        (templates / name).write_text(text, encoding="utf-8")
    environment = {**cell_files.environment(site), "LD_LIBRARY_PATH": str(cell_files.PROGRAMS_DIRECTORY)}
    init = ["classic", "libspoolc", cell_files.spooling_parameters(site), "init"]
    programs.must_run([str(cell_files.PROGRAMS_DIRECTORY / "spoolinit"), *init], environment)
    resources = SHARED_DIRECTORY / "util" / "resources"
    for words in (
        ["configuration", str(templates / "configuration")],
        ["complexes", str(resources / "centry")],
        ["usersets", str(resources / "usersets")],
        ["managers", plan.user],
        *([kind, str(templates / kind)] for kind in ("adminhosts", "submithosts", "exechosts", "pes")),
    ):
        programs.must_run([str(cell_files.PROGRAMS_DIRECTORY / "spooldefaults"), *words], environment)


def _queue_is_usable(site: SitePlan) -> bool:
    """Return True if the queue's slots have no state letters: each letter is a reason to accept no job."""
    answer = _ask(site, "qstat", "-f", "-q", cell_files.QUEUE, "-xml")
    if answer.code != 0:
        return False
    try:
        queues = ElementTree.fromstring(answer.stdout).findall(".//Queue-List")  # noqa: S314 - the lab's own cell
    except ElementTree.ParseError:
        return False
    return bool(queues) and all(not each.findtext("state") and each.findtext("arch") for each in queues)


def _said(site: SitePlan, daemons: Daemons, name: str) -> str:
    log = cell_files.spool(site) / "qmaster" / "messages"
    try:
        return programs.last_lines([daemons.said(name), *log.read_text(errors="replace").splitlines()])
    except OSError:
        return daemons.said(name)


def _ask(site: SitePlan, *words: str) -> programs.ProgramResult:
    try:
        return programs.run([*site.through, *words], cell_files.environment(site), timeout_s=_ASK_S)
    except LabFailedError as error:
        return programs.ProgramResult(1, "", str(error))
