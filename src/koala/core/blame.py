"""Whose fault a failure of an application is: its own, or that of the site where it failed.

A program that fails proves nothing. One that fails at a site and then runs to its end elsewhere, unchanged, speaks
against that site. Nobody is blamed for an end without an exit code, for one that the user calls the application's own
word, and for what we or the site ended.
"""

from __future__ import annotations

import hashlib

import msgspec

from koala.core.state.blame import PLAIN_WEIGHT, SIGNED_WEIGHT, Accusation
from koala.core.state.job import ComponentClaim, Job
from koala.core.state.ledger import Ledger

# A run that fails within so many seconds has failed at once.
AT_ONCE_S = 2.0
# The shell cannot execute the program, or does not find it.
CANNOT_EXECUTE, NOT_FOUND = 126, 127
# A shell adds this to the number of the signal that ended a program.
SIGNALLED = 128


class Blame:
    """Accusations come in with failures, and proofs with successes."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def application_failed(self, job: Job, claim: ComponentClaim, exit_code: int) -> None:
        """The application of the component failed by itself at its site."""
        assert job.spots is not None
        missing = exit_code in (CANNOT_EXECUTE, NOT_FOUND)
        if len(set(job.spots.sites)) > 1 and not missing:
            return  # what fails at one site may have its cause at another, but for a program that is not there
        at_once = job.started_at is not None and self.ledger.now - job.started_at < AT_ONCE_S
        signed = missing or exit_code > SIGNALLED or at_once
        self._accuse(job, claim, f"exit code {exit_code}", SIGNED_WEIGHT if signed else PLAIN_WEIGHT)

    def component_broke(self, job: Job, claim: ComponentClaim) -> None:
        """The component broke while it ran, and the site does not say that it was its doing."""
        self._accuse(job, claim, "a component broke", PLAIN_WEIGHT)

    def _accuse(self, job: Job, claim: ComponentClaim, how: str, weight: int) -> None:
        ledger = self.ledger
        accusation = Accusation(ledger.now, job.id, weight, _witness(job), f"{how} (job {job.id})")
        ledger.sites.sites[claim.site].record.accuse(f"{job.submitter}\n{_program(job, claim)}", accusation)
        ledger.sites.accused[claim.site] = None

    def job_done(self, job: Job) -> None:
        """The job ran to its end: what the same application did at other sites was their fault."""
        ledger = self.ledger
        accused = [index for index in sorted(ledger.sites.accused) if ledger.names[index] not in dict(job.places)]
        if not accused:
            return
        witness = _witness(job)
        for index in accused:
            record = ledger.sites.sites[index].record
            if record.prove(witness, job.id, ledger.now) and record.is_guilty:
                ledger.distrust(index, record.verdict)
                job.tell(ledger.now, "distrusted", index, record.verdict)


def _program(job: Job, claim: ComponentClaim) -> str:
    """What the component runs, by name. All scripts of a user are one program: they are often made by another."""
    application = job.request.components[0 if job.request.flexible is not None else claim.component].application
    return application.executable or "a script"


def _witness(job: Job) -> str:
    """Tells the very same application of the same user again."""
    applications = [component.application for component in job.request.components]
    distinct = applications if any(each != applications[0] for each in applications) else applications[:1]
    return hashlib.sha256(msgspec.json.encode((job.submitter, distinct))).hexdigest()[:32]
