"""How many slots of a Grid Engine host our jobs could get, by the resources that they request (``-l``).

Only amounts count, which a job may use up to the available quantity: numbers, memory and times with the relation
``<=``. Unknown or unintelligible values take no slot away.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from koala.sites.batch.grid_engine.xml import QueueInstance, Resource

# Newer versions have RSMAP: a number of things with names.
_AMOUNTS = ("INT", "DOUBLE", "MEMORY", "TIME", "RSMAP")
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,99}", re.ASCII)
_SIZE = re.compile(r"(-?\d{1,15})(?:\.(\d{1,9}))?([kKmMgGtT]?)", re.ASCII)
_TIME = re.compile(r"(\d{0,9}):(\d{0,9})(?::(\d{0,9}))?", re.ASCII)
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SCALES |= {"K": 1024.0, "M": 1024.0**2, "G": 1024.0**3, "T": 1024.0**4}
# A listing has separate fields for these.
_OWN = ("slots", "h_rt")


class Want(msgspec.Struct, frozen=True):
    """How much of a resource our job takes, for each slot or else where it runs. It takes a default only where some
    exists."""

    name: str
    amount: float
    for_each_slot: bool
    is_default: bool = False


def requests_of(options: Sequence[str]) -> dict[str, str]:
    """Parse the options of qsub for resources: ``-l a=1,b=2G``. The last of two requests for a resource counts; soft
    requests (``-soft``) do not."""
    found: dict[str, str] = {}
    is_hard = True
    for word, after in zip(options, [*options[1:], ""], strict=False):
        if word in ("-hard", "-soft"):
            is_hard = word == "-hard"
        elif word == "-l" and is_hard:
            pairs = (each.partition("=") for each in after.split(","))
            found |= {name: value if sign else "1" for name, sign, value in pairs if _NAME.fullmatch(name)}
    return {name: value for name, value in found.items() if name not in _OWN}


def wants_of(printed: str, requests: Mapping[str, str]) -> list[Want]:
    """Return what a job with these requests takes, by the lines of ``qconf -sc``: name, short name, kind, relation,
    whether it can be requested, whether it is a consumable, and its default."""
    wants = []
    for line in printed.splitlines():
        fields = line.split()
        if len(fields) < 7 or fields[0] in _OWN or fields[2] not in _AMOUNTS or fields[3] != "<=":
            continue
        name, short, used_up, default = fields[0], fields[1], fields[5].upper(), fields[6]
        asked = requests.get(name, requests.get(short))
        amount = amount_of(default if asked is None else asked)
        if amount is not None and 0 < amount < math.inf and (asked is not None or used_up != "NO"):
            wants.append(Want(name, amount, used_up == "YES", asked is None))
    return wants


def amount_of(text: str) -> float | None:
    """Parse ``2G``, ``1:30:00`` or ``infinity``; None if it is no amount."""
    if text.strip().lower() in ("infinity", "inf"):
        return math.inf
    size, time = _SIZE.fullmatch(text.strip()), _TIME.fullmatch(text.strip())
    if size is not None:
        return float(f"{size[1]}.{size[2] or 0}") * _SCALES[size[3]]
    if time is not None:
        hours, minutes, seconds = (float(part or 0) for part in time.groups())
        return (hours * 60 + minutes) * 60 + seconds
    return None


def slots_within(want: Want, resource: Resource) -> int | None:
    """Return how many slots a resource allows; None if it sets no limit. A consumable is divided among the slots; any
    other value of a queue or a host must be enough for one slot."""
    there = amount_of(resource.text)
    if there is None or math.isinf(there):
        return None
    there += rounded_off(resource.text)
    if want.for_each_slot and resource.kind[1:] in ("c", "l"):
        return max(0, math.floor(there / want.amount))
    return None if there >= want.amount else 0


def rounded_off(text: str) -> float:
    """Return how much printed values may lack by rounding: 8100M as 7.910G."""
    size = _SIZE.fullmatch(text.strip())
    return 0.0 if size is None or not size[2] else 0.5 * 10.0 ** -len(size[2]) * _SCALES[size[3]]


class Needs(msgspec.Struct, frozen=True):
    """What our jobs request, and what hosts have in addition to their queues."""

    wants: Sequence[Want] = ()
    hosts: Mapping[str, Sequence[Resource]] = {}

    def slots(self, instance: QueueInstance) -> dict[str, int]:
        """Return the most slots that our jobs could get of this queue instance (``q``), of all on its host (``h``)
        and of the whole cell (``g``); a missing layer sets no limit."""
        most: dict[str, int] = {}
        for want in self.wants:
            there = [*self.hosts.get(instance.host, ()), *instance.resources]
            ours = [each for each in there if each.name == want.name]
            if not ours and not want.is_default:
                most["q"] = 0
            for each in ours:
                slots = slots_within(want, each)
                layer = each.kind[:1]
                if slots is not None:
                    most[layer] = min(slots, most.get(layer, slots))
        return most
