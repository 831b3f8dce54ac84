"""Network namespaces for the sites of a lab, and the wide area between them, which ``koala.lab.network.emulator``
emulates.

A site's controller has the address 10.77.N.1 and its nodes have the following ones. Names are resolved by a hosts
file that ``ip netns exec`` puts in the place of the machine's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from koala.lab import leftovers, programs, record
from koala.lab.daemons import Daemons
from koala.lab.errors import LabError, LabFailedError
from koala.lab.network import emulator
from koala.lab.options import LabOptions, LabSystem, pairs
from koala.lab.plan import WIDE_AREA_DEVICE, LabPlan, SitePlan
from koala.lab.slurm.cluster_files import node_names

PROGRAMS = ("ip",)
NAME = "wide-area"
_NAMESPACES = Path("/run/netns")
_FILES = Path("/etc/netns")  # where ip netns exec looks for a namespace's replacements of files of /etc
_DEVICE_FILE = Path("/dev/net/tun")
_OF_LAB = "# of the lab in "  # the start of a namespace's hosts file; the directory of its lab follows
_SEED = 1


def check(plan: LabPlan) -> None:
    """Raise LabError if namespaces cannot be made, or somebody has one of these names. Names of a dead lab are
    free."""
    if os.geteuid() != 0:
        raise LabError("--wan: network namespaces are for root; run it as root, or leave --wan out")
    if not _DEVICE_FILE.exists():
        raise LabError(f"--wan: this machine has no {_DEVICE_FILE}; load the kernel's module tun, or leave --wan out")
    for site in plan.sites:
        if site.namespace is not None:
            _check_free(site.namespace, plan)


def _check_free(namespace: str, plan: LabPlan) -> None:
    owner = _owner(namespace)
    taken = (_NAMESPACES / namespace).exists() if owner is None else not _is_dead(owner, plan)
    if taken:
        whose = "" if owner is None else f", of the lab in {owner}"
        raise LabError(
            f"--wan: there is a network namespace {namespace} already{whose}; "
            f"choose another --first-port (it is {plan.options.first_port} now)"
        )


def _owner(namespace: str) -> Path | None:
    """Return the directory of the lab that made a namespace; None if it is unknown."""
    with contextlib.suppress(OSError):
        first = (_FILES / namespace / "hosts").read_text(encoding="utf-8").partition("\n")[0]
        if first.startswith(_OF_LAB):
            return Path(first.removeprefix(_OF_LAB))
    return None


def _is_dead(lab: Path, plan: LabPlan) -> bool:
    """Return True if the lab in a directory is dead, and nobody but this plan's lab is working on it."""
    with contextlib.suppress(LabFailedError), contextlib.ExitStack() as stack:
        if lab != plan.directory:
            with contextlib.suppress(OSError):  # the directory is gone
                stack.enter_context(record.alone(lab))
        return not leftovers.lab_processes(lab)
    return False


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold a lock of this machine, so that only one process at a time checks, makes and removes namespaces."""
    descriptor = os.open(_NAMESPACES.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def start(plan: LabPlan, daemons: Daemons) -> None:
    """Make the namespaces and forward packets between them; return when packets flow."""
    with _one_at_a_time():
        for site in plan.sites:
            _make_namespace(site, plan)
    (plan.daemons / NAME).mkdir(parents=True)
    daemons.start(NAME, [sys.executable, emulator.__file__, str(_write_settings(plan))], None)
    wait(plan, daemons)


def _write_settings(plan: LabPlan) -> Path:
    path = plan.daemons / NAME / "settings.json"
    path.write_text(json.dumps(emulator_settings(plan), indent=2), encoding="utf-8")
    return path


def wait(plan: LabPlan, daemons: Daemons) -> None:
    """Wait until packets flow. Raises LabFailedError with the emulator's output if they never do."""
    ready = plan.daemons / NAME / emulator.READY
    programs.wait_until(lambda: ready.exists() or not daemons.is_alive(NAME), programs.START_S_MAX)
    if not (ready.exists() and daemons.is_alive(NAME)):
        raise LabFailedError(f"the emulator of the wide area did not start: {daemons.said(NAME)}")


def prepare_again(plan: LabPlan) -> None:
    """Prepare a restart of the emulator with the links of the plan, and clear its sign that packets flow."""
    _write_settings(plan)
    (plan.daemons / NAME / emulator.READY).unlink(missing_ok=True)


def remove(plan: LabPlan) -> None:
    """Remove the namespaces and their files, as far as they exist. Those that another lab has taken over stay."""
    with _one_at_a_time():
        for site in plan.sites:
            assert site.namespace is not None, "of a lab behind a wide area"
            if _owner(site.namespace) in (None, plan.directory):
                _remove_namespace(site.namespace)


def _remove_namespace(namespace: str) -> None:
    if (_NAMESPACES / namespace).exists():
        programs.must_run(["ip", "netns", "delete", namespace])
    (_FILES / namespace / "hosts").unlink(missing_ok=True)
    for directory in (_FILES / namespace, _FILES):
        with contextlib.suppress(OSError):
            directory.rmdir()


def emulator_settings(plan: LabPlan) -> dict[str, Any]:
    """Return the settings of the emulator."""
    links = []
    for one, other in pairs(plan.options):
        link = plan.options.link(one, other)
        assert link is not None, "of a lab behind a wide area"
        between = [plan.site(one).number, plan.site(other).number]
        links.append(
            {"between": between, "rate_mbit_s": link.rate_mbit_s, "delay_s": link.delay_s, "loss": link.loss}
        )
    sites = {site.number: site.namespace for site in plan.sites}
    return {"device": WIDE_AREA_DEVICE, "sites": sites, "links": links, "seed": _SEED}


def hosts_text(plan: LabPlan) -> str:
    """Return the names of all addresses, the same in every namespace. This machine's own name is the loopback's."""
    lines = [f"{_OF_LAB}{plan.directory}", f"127.0.0.1 localhost {plan.host}"]
    for site in plan.sites:
        lines.append(f"{site.address} {site.name}")
        if site.kind is LabSystem.SLURM:
            nodes = zip(site.node_addresses, node_names(site, plan), strict=True)
            lines += [f"{address} {name}" for address, name in nodes]
    return "\n".join(lines) + "\n"


def _make_namespace(site: SitePlan, plan: LabPlan) -> None:
    assert site.namespace is not None, "of a lab behind a wide area"
    _check_free(site.namespace, plan)
    _remove_namespace(site.namespace)
    hosts = _FILES / site.namespace / "hosts"
    hosts.parent.mkdir(parents=True, exist_ok=True)
    hosts.write_text(hosts_text(plan), encoding="utf-8")
    programs.must_run(["ip", "netns", "add", site.namespace])
    programs.must_run(["ip", "-netns", site.namespace, "-batch", "-"], text=_device_commands(site, plan.options))


def _device_commands(site: SitePlan, options: LabOptions) -> str:
    """Return commands for ip: a device with the site's addresses, which survives a restart of the emulator."""
    device = WIDE_AREA_DEVICE
    links = [options.link(site.name, other) for other in options.sites if other != site.name]
    rates = [{"rate_mbit_s": link.rate_mbit_s, "loss": link.loss} for link in links if link is not None]
    segment_bytes = emulator.segment_bytes(rates)
    most = f" gso_max_size {segment_bytes}" if segment_bytes else ""
    lines = [
        "link set lo up",
        f"tuntap add dev {device} mode tun vnet_hdr",
        f"link set {device} mtu {emulator.MTU_BYTES} txqueuelen 1000{most} addrgenmode none",
        *(f"address add {address}/16 dev {device}" for address in (site.address, *site.node_addresses)),
        f"link set {device} up",
    ]
    return "\n".join(lines) + "\n"
