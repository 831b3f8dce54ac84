"""Driver one: the scheduler in virtual time, with simulated sites, links, users and faults."""

from koala.simulator.result import JobRow, Result
from koala.simulator.run import simulate
from koala.simulator.workload import Arrival, Workload, WorkloadError
from koala.simulator.world import World

__all__ = ["Arrival", "JobRow", "Result", "Workload", "WorkloadError", "World", "simulate"]
