"""Since when a site does not answer, and how often its silence counts as an error."""

from __future__ import annotations

from koala.daemon.engine.silences import COUNTS_AGAIN_S, Silences


def test_a_silence_counts_once_for_all_who_meet_it_and_again_only_when_it_lasts() -> None:
    silences = Silences()
    assert silences.begin("a", "probes", 100.0, "no route")
    assert not silences.begin("a", "commands", 100.5, "no route")
    assert not silences.begin("a", "commands", 99.9 + COUNTS_AGAIN_S, "no route")
    assert silences.begin("a", "commands", 100.0 + COUNTS_AGAIN_S, "no route")
    assert not silences.begin("a", "probes", 100.0 + COUNTS_AGAIN_S, "no route")
    assert silences.begin("b", "probes", 100.0 + COUNTS_AGAIN_S, "no route"), "another site has a count of its own"


def test_a_site_that_falls_silent_again_and_again_is_counted_no_faster() -> None:
    silences = Silences()
    counted = 0
    for second in range(60):
        counted += silences.begin("a", "probes", float(second), "no route")
        silences.end("a", "probes")
    assert counted == 60 / COUNTS_AGAIN_S


def test_a_site_is_silent_until_everybody_was_answered() -> None:
    silences = Silences()
    silences.begin("a", "probes", 1.0, "no route")
    silences.begin("a", "commands", 2.0, "refused")
    silences.begin("a", "probes", 3.0, "still no route")
    assert silences.of("a") == (1.0, "still no route")
    silences.end("a", "probes")
    assert silences.of("a") == (2.0, "refused")
    silences.end("a", "commands")
    assert silences.of("a") is None
