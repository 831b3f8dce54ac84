"""Since when a site does not answer, and how often its silence counts as an error."""

from __future__ import annotations

import logging

import pytest

from koala.daemon.perform.interface import COUNTS_AGAIN_S, Silences, SiteTrouble
from koala.model.messages import AnyEvent, SiteSilent


class HeardEvents:
    """An engine that keeps what it is told; its time is set."""

    def __init__(self) -> None:
        self.time = 0.0
        self.heard: list[AnyEvent] = []

    def now(self) -> float:
        return self.time

    def report(self, event: AnyEvent) -> None:
        self.heard.append(event)

    def settle(self, seq: int) -> None:
        raise AssertionError("a silence settles nothing")


def failed(silences: Silences, engine: HeardEvents, at: float, site: str, caller: str) -> bool:
    """A call fails; whether that counts as an error of the site."""
    before = len(engine.heard)
    engine.time = at
    silences.failed(site, caller, "no route")
    told = engine.heard[before:]
    assert told in ([], [SiteSilent(at=at, site=site, reason="no route")])
    return bool(told)


def test_a_silence_counts_once_for_all_callers_and_again_only_when_it_lasts() -> None:
    engine = HeardEvents()
    silences = Silences(engine)
    assert failed(silences, engine, 100.0, "a", "probes")
    assert not failed(silences, engine, 100.5, "a", "commands")
    assert not failed(silences, engine, 99.9 + COUNTS_AGAIN_S, "a", "commands")
    assert failed(silences, engine, 100.0 + COUNTS_AGAIN_S, "a", "commands")
    assert not failed(silences, engine, 100.0 + COUNTS_AGAIN_S, "a", "probes")
    assert failed(silences, engine, 100.0 + COUNTS_AGAIN_S, "b", "probes"), "another site has a count of its own"


def test_a_site_that_falls_silent_again_and_again_is_counted_no_faster() -> None:
    engine = HeardEvents()
    silences = Silences(engine)
    counted = 0
    for second in range(60):
        counted += failed(silences, engine, float(second), "a", "probes")
        silences.answered("a", "probes")
    assert counted == 60 / COUNTS_AGAIN_S


def test_a_site_is_silent_until_every_caller_was_answered() -> None:
    engine = HeardEvents()
    silences = Silences(engine)
    for at, caller, reason in ((1.0, "probes", "no route"), (2.0, "commands", "refused"), (3.0, "probes", "still")):
        engine.time = at
        silences.failed("a", caller, reason)
    assert silences.of("a") == SiteTrouble(1.0, "still")
    silences.answered("a", "probes")
    assert silences.of("a") == SiteTrouble(2.0, "refused")
    silences.answered("a", "commands")
    assert silences.of("a") is None


def test_that_a_site_is_not_set_up_as_it_should_be_goes_before_that_somebody_had_no_answer() -> None:
    silences = Silences(HeardEvents())
    silences.failed("a", "commands", "refused")
    silences.failed("a", "probes", "there is no partition x", answers=True)
    found = silences.of("a")
    assert found is not None
    assert (found.reason, found.answers) == ("there is no partition x", True)


def test_the_log_has_one_line_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "koala.daemon.sites")
    silences = Silences(HeardEvents())
    for reason in ("no route", "no route", "no route", "refused", "refused"):
        silences.failed("a", "probes", reason)
    silences.answered("a", "probes")
    silences.answered("a", "probes")
    told = ["site a does not answer: no route", "site a does not answer: refused", "site a answers again"]
    assert caplog.messages == told
