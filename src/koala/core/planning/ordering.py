"""The order of the placement queues: it is chosen here, and requested from a user-supplied function if there is one.

Nothing here places a job: see ``koala.core.placement``; ``koala.core.state.standing`` keeps queues in order.
"""

from __future__ import annotations

from functools import partial

from koala.core.life.job import Job
from koala.core.life.states import GIVEN_BACK
from koala.core.state.ledger import Ledger
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.queues.standing import Asked, FirstCome, RoundRobin, ShortestFirst
from koala.model.request import Priority
from koala.policies import PolicyError
from koala.policies.orders.asking import ask_order
from koala.policies.orders.builtin import EASY, FCFS, OWN_ORDERS, ROUND_ROBIN, SJF
from koala.policies.orders.order import JobOrder, UserJobs, WaitingJob


class QueueOrdering:
    """The order of both queues. If an order gives a wrong answer, jobs stand first come, first served."""

    def __init__(self, ledger: Ledger, order: JobOrder) -> None:
        self._ledger = ledger
        self._order = order
        ledger.order_for = self.take_up
        for queue in (ledger.high, ledger.low):
            self.take_up(queue)

    def take_up(self, queue: PlacementQueue) -> None:
        """Put an empty queue in this order from now on."""
        order = self._order
        if order is not ROUND_ROBIN:
            queue.turns = {}
        if order in (FCFS, EASY, ROUND_ROBIN):
            queue.overdue = {}
        if order in OWN_ORDERS:
            queue.answered = []
        queue.standing = self._standing(queue)
        queue.ask_again = partial(self._ask, queue)

    def _standing(self, queue: PlacementQueue) -> FirstCome:
        ledger, order = self._ledger, self._order
        patience_s = ledger.parameters.order_patience_s
        if order is FCFS or order is EASY:
            return FirstCome()
        if order is SJF:
            return ShortestFirst(ledger.planned_s, queue.overdue, patience_s)
        if order is ROUND_ROBIN:
            return RoundRobin(queue.turns)
        return Asked(queue.answered, queue.overdue, patience_s)

    def begin(self, queue: PlacementQueue) -> None:
        """Begin a scan of the queue."""
        for job in queue.standing.grow_overdue(self._ledger.now):
            queue.move(job)
        if queue.standing.asked:
            self._ask(queue)

    def _ask(self, queue: PlacementQueue) -> None:
        standing, ledger = queue.standing, self._ledger
        assert isinstance(standing, Asked)
        jobs = sorted(queue.in_line(), key=lambda job: job.position)
        users = self._users(jobs)
        try:
            numbers = ask_order(self._order, [self._view(job) for job in jobs], users, ledger.now)
            ledger.order_problem = ""
        except PolicyError as error:
            numbers = [job.id for job in jobs]
            ledger.order_problem = error.for_user()
        standing.answered(numbers)
        queue.rearrange()

    def _users(self, waiting: list[Job]) -> dict[str, UserJobs]:
        """Return by user, in alphabetical order, the user's running jobs and the number of jobs that wait here."""
        counts = {job.submitter: [0, 0, 0] for job in waiting}
        for job in waiting:
            counts[job.submitter][2] += 1
        for job in self._ledger.jobs.values():
            if job.placement is not None and job.state not in GIVEN_BACK:
                has = counts.setdefault(job.submitter, [0, 0, 0])
                has[0] += 1
                has[1] += sum(job.placement.spots.sizes)
        return {user: UserJobs(*counts[user]) for user in sorted(counts)}

    def _view(self, job: Job) -> WaitingJob:
        ledger, request = self._ledger, job.request
        array = ledger.arrays.get(job.array) if job.array else None
        return WaitingJob(
            job.id,
            job.submitter,
            request.name,
            str(Priority.HIGH if job.high else Priority.LOW),
            job.submitted_at,
            job.waiting_since,
            job.demand.total,
            len(request.components),
            job.walltime_s,
            ledger.planned_s(job),
            job.array or None,
            job.index,
            0 if array is None else array.elements.to_come,
            job.placement_tries + ledger.tries_in_queue(job),
            job.plan_at is not None,
        )
