"""The reports of the traffic between a component and the others of its job: the mail of ``traffic.sh``, parsed.

The kernel counts the bytes of every TCP connection, and knows which process has it open: so only the job's own
traffic counts, even where a site's jobs share one network. For an application that is not MPI, only connections to
the other components' nodes count, because it may have others. Other kinds of traffic are not reported, such as shared
memory between two sites of one machine, nor connections that were opened and closed between two reports.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from koala.model.network import BIT_S_PER_MBIT_S
from koala.model.request import BANDWIDTH_MBIT_S_MAX

# The first report comes this many seconds after the start, each further one after twice that time, up to the maximum.
TRAFFIC_FIRST_S = 2
TRAFFIC_REPORTS_MAX = 16
_BITS = 8
_NAME = re.compile(r"traffic-[0-9]{2}")
_NUMBER = r"([0-9]{1,18}(?:\.[0-9]{1,6})?)"
_REPORT = re.compile(rf"{_NUMBER} {_NUMBER} {_NUMBER} {_NUMBER} ([0-9]{{1,9}})\s*")

_MISSING = "it needs ss (iproute2), awk and ps on the nodes there"
_UNMEASURED = "ss or ps did not answer on a node there"
_UNSEEN = "it has no TCP connection to the other components: its processes talk in another way, or not at all"
_SEVERAL = "a plain job has several nodes there, and its processes on nodes other than the first are not seen"
_SENSELESS = "what its script reported makes no sense"
_WORDS = {"missing": _MISSING, "unmeasured": _UNMEASURED, "several": _SEVERAL}


class TrafficReport(NamedTuple):
    """What a component has sent to the others and received from them, in bits per second, in a period that ended
    ``elapsed_s`` after its start. With a ``reason`` nothing was measured."""

    elapsed_s: float = 0.0
    sent_bit_s: float = 0.0
    received_bit_s: float = 0.0
    reason: str = ""


def is_traffic_mail(name: str) -> bool:
    """Return True if a piece of mail is such a report."""
    return _NAME.fullmatch(name) is not None


def parse_traffic(data: bytes) -> TrafficReport:
    """Parse the report in a piece of mail. The application can write there too, so it may contain anything."""
    text = data[:200].decode(errors="replace").strip()
    if text in _WORDS:
        return TrafficReport(reason=_WORDS[text])
    match = _REPORT.fullmatch(text)
    if match is None or float(match[2]) <= 0.0:
        return TrafficReport(reason=_SENSELESS)
    elapsed_s, over_s, sent_bytes, received_bytes = (float(match[place]) for place in range(1, 5))
    if int(match[5]) == 0:
        return TrafficReport(elapsed_s=elapsed_s, reason=_UNSEEN)
    sent_bit_s, received_bit_s = (
        min(count * _BITS / over_s, BANDWIDTH_MBIT_S_MAX * BIT_S_PER_MBIT_S) for count in (sent_bytes, received_bytes)
    )
    return TrafficReport(elapsed_s, sent_bit_s, received_bit_s)
