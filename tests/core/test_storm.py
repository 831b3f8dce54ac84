"""Any sequence of events, in any order: the books balance after each one, and in the end nothing is left.

The world here is careless: it answers about anything, twice, late or never. Only the contract's one promise is
kept: a component whose end was told stays ended.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from koala.core import JobState
from koala.core.state.site_belief import Trust
from koala.model.facts import TurnEntry
from koala.model.grid import LinkGroup, Network
from koala.model.messages import (
    AnyEvent,
    FileChanged,
    Outcome,
    ReleaseBarrier,
    SiteDrained,
    SiteResumed,
    SiteSilent,
    StartComponent,
)
from koala.model.request import Communication, Component, Flexibility, InputMode, Pattern, Request
from tests.support.core_driver import (
    CoreDriver,
    ask,
    ask_total,
    assert_clean,
    assert_ledger_balances,
    kind,
    part,
    seconds,
)

SITES = ("a", "b", "store")
NETWORK = Network(uplink_mbit_s=100.0, groups=(LinkGroup(name="ab", members=("a", "b"), uplink_mbit_s=50.0),))
ALL_TO_ALL = Communication(bisection_mbit_s=60.0)
RING = Communication(pattern=Pattern.RING, per_processor_mbit_s=20.0)
STEPS_MAX = 60


def talking_total(high: bool, policy: str) -> Request:
    """A total that is divided with an eye on the links."""
    components = (Component(processors=10),)
    return ask(*components, high=high, policy=policy, flexible=Flexibility(), communication=ALL_TO_ALL, home="b")


# Small numbers that meet often; every request can be placed on some state of the sites.
REQUESTS: tuple[Callable[[bool], Request], ...] = (
    lambda high: ask(3, high=high),
    lambda high: ask(5, 4, high=high),
    lambda high: ask(part(6, "a"), part(2, "b"), high=high),
    lambda high: ask(part(4, None, "f"), part(3, None, "g"), high=high, policy="CF"),
    lambda high: ask(part(6, "a", "f"), part(5, "b", "f"), high=high, restarts_max=1),
    lambda high: ask(part(4, "a", "f"), part(4, "a", "g"), high=high, claiming_tries_max=4),
    lambda high: ask(part(5, None, "f", mode=InputMode.CHUNK), 2, high=high, placement_tries_max=3),
    lambda high: ask(4, 4, high=high, communication=RING),
    lambda high: ask(part(4, None, "f"), part(5, None, "g"), high=high, policy="CF", communication=ALL_TO_ALL),
    lambda high: talking_total(high, "B1(lslt=0.5)"),
    lambda high: talking_total(high, "A1"),
    lambda high: ask_total(9, "f", high=high, mode=InputMode.CHUNK, component_min=2),
)


class WatchedDesk(CoreDriver):
    """Looks at every start: nothing goes to a site that is out of use, or onto processors that are taken."""

    def send(self, event: AnyEvent) -> list[TurnEntry]:
        out_of_use = set()
        for site in self.ledger.sites:
            # A site whose cool-down ends with this event may be tried in the same moment.
            cooled = site.cooling is not None and site.cooling.at <= event.at
            if site.drained or (site.trust is Trust.UNUSABLE and not cooled):
                out_of_use.add(site.name)
        commands = super().send(event)
        for start in kind(commands, StartComponent):
            site = self.ledger.sites.sites[self.ledger.index[start.site]]
            assert start.site not in out_of_use
            assert site.free >= 0, f"{start.site} was given more than it has"
        return commands


class Storm:
    """Draws what happens next, and follows which components may run."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.driver = WatchedDesk(
            {"a": 8, "b": 6, "store": 2},
            files={"f": (40.0, ("store",)), "g": (15.0, ("store", "b"))},
            network=NETWORK,
            scan_interval_s=self.draw(st.sampled_from([0.0, 4.0])),
            hold_placed=self.draw(st.booleans()),
            claim_threshold=self.draw(st.sampled_from([0.0, 0.5, 1.0])),
            error_threshold=2,
            cooldown_s=50.0,
            answer_timeout_s=20.0,
            barrier_timeout_s=45.0,
            queue_patience_s=self.draw(st.sampled_from([None, 2.0, 9.0])),
            check_interval_s=30.0,
            transfer_patience=2.0,
            transfer_tries_max=2,
        )
        self.job_of: dict[str, int] = {}
        self.released: dict[str, int] = {}

    def step(self) -> None:
        acts = (
            self.submit,
            self.submit,
            self.pass_time,
            self.pass_time,
            self.ready,
            self.ready,
            self.ready_all,
            self.accept,
            self.starting,
            self.end,
            self.bring,
            self.bring,
            self.site_word,
            self.cancel,
            self.change_file,
        )
        self.watch(self.draw(st.sampled_from(acts))())
        assert_ledger_balances(self.driver.ledger)

    def watch(self, commands: list[TurnEntry]) -> None:
        """No job is let through the barrier while a component of an earlier run of it may still be running."""
        for command in commands:
            if isinstance(command, StartComponent):
                assert command.token not in self.job_of
                self.job_of[command.token] = command.job
            if isinstance(command, ReleaseBarrier):
                running = {token for token, job in self.released.items() if job == command.job}
                assert running <= set(command.tokens) or len(command.tokens) == 1
                self.released.update(dict.fromkeys(command.tokens, command.job))

    def submit(self) -> list[TurnEntry]:
        return self.driver.submit(self.draw(st.sampled_from(REQUESTS))(self.draw(st.booleans())))

    def pass_time(self) -> list[TurnEntry]:
        return self.driver.pass_time(self.draw(st.sampled_from([0.0, 0.5, 3.0, 11.0, 40.0, 130.0])))

    def token(self) -> str:
        return self.draw(st.sampled_from([*self.job_of, "0.0"]))

    def ready(self) -> list[TurnEntry]:
        return self.driver.ready(self.token())

    def accept(self) -> list[TurnEntry]:
        return self.driver.accept(*list(self.driver.ledger.claims))

    def starting(self) -> list[TurnEntry]:
        return self.driver.starting(self.token())

    def ready_all(self) -> list[TurnEntry]:
        return self.driver.ready(*list(self.driver.ledger.claims))

    def end(self) -> list[TurnEntry]:
        token = self.token()
        self.released.pop(token, None)
        return self.driver.end(token, outcome=self.draw(st.sampled_from(Outcome)))

    def bring(self) -> list[TurnEntry]:
        transfer = self.draw(st.sampled_from([*self.driver.transfers()[-4:], "t0"]))
        return self.driver.end_transfer(transfer, ok=self.draw(st.sampled_from([True, True, False])))

    def site_word(self) -> list[TurnEntry]:
        site = self.draw(st.sampled_from(SITES))
        now = self.driver.now
        act = self.draw(st.sampled_from(["report", "report", "silent", "drain", "resume", "resume"]))
        if act == "report":
            return self.driver.report(site, others=self.draw(st.integers(0, 6)))
        if act == "silent":
            return self.driver.send(SiteSilent(at=now, site=site, reason="no route"))
        return self.driver.send((SiteDrained if act == "drain" else SiteResumed)(at=now, site=site))

    def cancel(self) -> list[TurnEntry]:
        return self.driver.cancel(self.draw(st.integers(0, 12)))

    def change_file(self) -> list[TurnEntry]:
        replicas = self.draw(st.sampled_from([(), ("store",), ("a",), ("a", "b")]))
        return self.driver.send(
            FileChanged(at=self.driver.now, file="g", size_bytes=seconds(15.0), replicas=replicas)
        )

    # ------------------------------------------------------------------------------- when it has passed

    def cancel_all(self) -> None:
        for job in list(self.driver.ledger.jobs):
            self.driver.cancel(job)
            assert_ledger_balances(self.driver.ledger)
        self.driver.end(*list(self.driver.ledger.claims), outcome=Outcome.ABORTED)

    def heal(self) -> None:
        """Every site is back, empty and honest; every file has a replica; every claim and transfer goes well."""
        driver = self.driver
        for site, processors in (("a", 20), ("b", 20), ("store", 20)):
            driver.send(SiteResumed(at=driver.now, site=site))
            driver.report(site, others=0, processors=processors)
        driver.send(FileChanged(at=driver.now, file="g", size_bytes=seconds(15.0), replicas=("store",)))
        for _ in range(60):
            if not driver.ledger.jobs and not driver.ledger.claims:
                break
            self.serve()
            self.watch(driver.pass_time(5.0))
            assert_ledger_balances(driver.ledger)

    def serve(self) -> None:
        """One round of good answers."""
        driver = self.driver
        for transfer in list(driver.ledger.transfers.by_id):
            self.watch(driver.end_transfer(transfer))
        for token, claim in list(driver.ledger.claims.items()):
            done = claim.job.state is JobState.RUNNING and not claim.aborting
            if claim.aborting or done:
                self.released.pop(token, None)
                self.watch(driver.end(token, outcome=Outcome.DONE if done else Outcome.ABORTED))
            else:
                self.watch(driver.ready(token))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_books_balance_after_every_event_and_nothing_is_left_when_all_is_cancelled(data: st.DataObject) -> None:
    storm = Storm(data)
    for _ in range(data.draw(st.integers(1, STEPS_MAX))):
        storm.step()
    storm.cancel_all()
    assert_clean(storm.driver.ledger)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_when_the_storm_is_over_every_job_comes_to_its_end(data: st.DataObject) -> None:
    storm = Storm(data)
    for _ in range(data.draw(st.integers(1, STEPS_MAX))):
        storm.step()
    storm.heal()
    assert_clean(storm.driver.ledger)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_alarm_that_is_needed_has_been_asked_for(data: st.DataObject) -> None:
    """After any event the next thing that is due has a tick coming no later than it."""
    storm = Storm(data)
    for _ in range(data.draw(st.integers(1, STEPS_MAX))):
        storm.step()
        ledger = storm.driver.ledger
        due = min(ledger.timers.next_at(), ledger.claiming.next_at, ledger.high.scan_due_at, ledger.low.scan_due_at)
        assert due == float("inf") or storm.driver.next_wake() <= due
