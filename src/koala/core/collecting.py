"""Outputs: those of a job whose components have all returned success are collected at its sites and
enter the catalogue.

The job holds no processors meanwhile, and is done when every output is registered: then dependent jobs find its
outputs, and are placed close to them. An output that no component made fails the job, since jobs that wait for it
would wait for ever.
"""

from __future__ import annotations

from koala.core.ending import JobEnding
from koala.core.life.collecting import Collecting
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.state.ledger import Ledger
from koala.core.timers import Alarm
from koala.model.facts import OutputRegistered, OutputsAwaited
from koala.model.messages import CollectOutputs, OutputsCollected
from koala.model.outputs import MadeOutput, output_name
from koala.model.request import JobId, Request
from koala.policies.interface import FileAt

# Intervals between repeats of an unanswered order grow to at most this multiple of the answer timeout.
COLLECT_WAIT_FACTOR_MAX = 64
# At most this many outputs are named in a reason.
NAMED_MAX = 5


class OutputCollecting:
    """Collects outputs and registers them."""

    def __init__(self, ledger: Ledger, ending: JobEnding) -> None:
        self.ledger = ledger
        self.ending = ending
        ledger.timers.on(Alarm.COLLECT_AGAIN, self._again)

    def begin(self, job: Job) -> None:
        """Begin to collect after the last component of a run has returned success."""
        run = job.running
        self.ending.give_back(job)
        phase = Collecting.through(run)
        job.become(phase)
        where = sorted(self._where(phase))
        self.ledger.story.append(OutputsAwaited(job=job.id, sites=tuple([self.ledger.names[site] for site in where])))
        self._order(job, phase)

    @staticmethod
    def _where(phase: Collecting) -> set[int]:
        return {phase.placement.spots.sites[component] for component in phase.workspaces}

    def _order(self, job: Job, phase: Collecting) -> None:
        """Order the outputs that are still missing, and come back later: orders and answers may get lost."""
        ledger = self.ledger
        for component, token in sorted(phase.workspaces.items()):
            if component not in phase.collected:
                ledger.commands.append(
                    CollectOutputs(
                        job=job.id,
                        token=token,
                        site=ledger.names[phase.placement.spots.sites[component]],
                        part=component,
                        outputs=job.request.outputs_of(component),
                    )
                )
        wait_s = ledger.parameters.answer_timeout_s * min(2**phase.tries, COLLECT_WAIT_FACTOR_MAX)
        phase.tries += 1
        job.timer = ledger.timers.set(ledger.now + wait_s, Alarm.COLLECT_AGAIN, job.id)

    def _again(self, job_id: JobId) -> None:
        job = self.ledger.jobs[job_id]
        job.timer = None
        if isinstance(job.phase, Collecting):
            self._order(job, job.phase)

    def on_collected(self, event: OutputsCollected) -> None:
        """Note that a site has taken in a component's outputs, or why it cannot."""
        job = self.ledger.jobs.get(event.job)
        if job is None or not isinstance(job.phase, Collecting):
            return
        for component, token in job.phase.workspaces.items():
            if token == event.token and component not in job.phase.collected:
                self._collected(job, job.phase, component, event)
                return

    def _collected(self, job: Job, phase: Collecting, component: int, event: OutputsCollected) -> None:
        site = self.ledger.names[phase.placement.spots.sites[component]]
        if event.problem:
            self._register(job, phase)
            reason = f"its components are done, but what component {component} made on {site} cannot be collected"
            self.ending.end(job, JobState.FAILED, f"{reason}: {event.problem}")
            return
        phase.collected = phase.collected or {}
        phase.collected[component] = event.outputs
        job.changes.runs[job.id] = None
        if len(phase.collected) < len(phase.workspaces):
            return
        self._register(job, phase)
        missing = self._missing(job.request, phase)
        if missing:
            named = ", ".join(missing[:NAMED_MAX])
            more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
            self.ending.end(
                job,
                JobState.FAILED,
                f"its components are done, but {'the output' if len(missing) == 1 else 'the outputs'} {named}{more} "
                f"{'was' if len(missing) == 1 else 'were'} not made",
            )
        else:
            self.ending.end(job, JobState.DONE)

    @staticmethod
    def _missing(request: Request, phase: Collecting) -> list[str]:
        """Return the listed outputs that no component made."""
        made = {output.path for outputs in phase.collected.values() for output in outputs}
        listed = {
            output.path: None for component in sorted(phase.workspaces) for output in request.outputs_of(component)
        }
        return [path for path in listed if path not in made]

    def _register(self, job: Job, phase: Collecting) -> None:
        """Enter what was collected in the catalogue, even if the job fails because other outputs are missing."""
        for component, outputs in sorted(phase.collected.items()):
            site = phase.placement.spots.sites[component]
            for output in outputs:
                self._register_one(job, component, site, output)

    def _register_one(self, job: Job, component: int, site: int, output: MadeOutput) -> None:
        ledger = self.ledger
        name = output_name(job.id, component, output.file)
        others = [ledger.index[each] for each in output.also_at if each in ledger.index]
        holders = tuple(dict.fromkeys((site, *others)))
        ledger.sites.view.files[name] = FileAt(output.size_bytes, tuple(sorted(holders)))
        ledger.sites.files_changed(name)
        sites = tuple(ledger.names[each] for each in holders)
        kept_s = job.request.keep_outputs_for_s
        kept_s = ledger.parameters.keep_outputs_for_s if kept_s is None else kept_s
        until = None if kept_s is None else ledger.now + kept_s
        ledger.facts.append(
            OutputRegistered(job=job.id, part=component, file=name, output=output, sites=sites, kept_until=until)
        )

    # ------------------------------------------------------------------------------------------- lost sites

    def site_lost(self, index: int, reason: str) -> None:
        """Restart the jobs whose outputs at the lost site are not all collected yet."""
        ledger = self.ledger
        if not ledger.states[JobState.COLLECTING]:
            return
        for job in [job for job in ledger.jobs.values() if job.state is JobState.COLLECTING]:
            if isinstance(job.phase, Collecting) and index in self._where(job.phase):
                ledger.current_jobs = (job,)
                self.ending.back_to_queue(job, f"{ledger.names[index]} is lost, and with it what the job made there")
