"""Promises about the links between sites: the times of probes, and the beliefs about links."""

from __future__ import annotations

from collections.abc import Callable

from koala.core import Scheduler
from koala.core.probing import PROBE_DEADLINE_S
from koala.model.facts import Turn
from koala.model.messages import AnyEvent, LinkProbed, ProbeLink, TransferEnded
from koala.model.request import JobId

IDLE = "a probe goes over an idle link"
WITHIN = "a forecast stays within what was measured"


class LinkPromises:
    """Follows the probes of one run; calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._asked: tuple[str, str] | None = None
        self._asked_at = 0.0

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the consequences of the event."""
        if isinstance(event, LinkProbed) and (event.source, event.target) == self._asked:
            self._asked = None
        for entry in turn.entries:
            if isinstance(entry, ProbeLink):
                self._is_idle(entry, event.at)
        if isinstance(event, (LinkProbed, TransferEnded)):
            self._within()

    def _is_idle(self, command: ProbeLink, at: float) -> None:
        if self._asked is not None and at < self._asked_at + PROBE_DEADLINE_S:
            self._fail(IDLE, f"{self._asked} was still being probed when {command} came")
        self._asked, self._asked_at = (command.source, command.target), at
        ends = {command.source, command.target}
        for transfer in self._ledger.transfers.by_id.values():
            sites = {self._ledger.names[transfer.source], self._ledger.names[transfer.key[2]]}
            if not transfer.done and sites & ends:
                self._fail(IDLE, f"transfer {transfer.id} was on its way when {command} came")
        held: dict[JobId, set[str]] = {}
        for claim in self._ledger.claims.values():
            held.setdefault(claim.job_id, set()).add(self._ledger.names[claim.site])
        for job, sites in held.items():
            if ends <= sites:
                self._fail(IDLE, f"job {job} was at both ends when {command} came")

    def _within(self) -> None:
        forecasts = self._ledger.forecasts
        for pair, series in forecasts.series.items():
            for measured, rows in (
                (series.bandwidth, forecasts.view.bytes_per_s),
                (series.latency, forecasts.view.latency_s),
            ):
                known = [rows.declared(*pair), *[each.value for each in measured]]
                if measured and not min(known) <= rows.at(*pair) <= max(known):
                    self._fail(
                        WITHIN, f"{rows.at(*pair):g} is believed of {pair}; declared and measured were {known}"
                    )
