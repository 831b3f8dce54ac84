"""The same model as the core under the simulator in this benchmark, as the plainest fast Python loop there is.

First fit over one queue, each job whole on the cluster with the most free processors. It does nothing else: no
events, no log, no policies, no files, no faults.
"""

from __future__ import annotations

from heapq import heappop, heappush

from workloads import Jobs


def start_times(jobs: Jobs, clusters: int, processors: int) -> list[float]:
    """When each job starts. Ends come before arrivals of the same moment, and a scan sees all ends of its moment."""
    submit_s, sizes, execution_s = jobs
    count = len(sizes)
    smallest = min(sizes)
    free = [processors] * clusters
    most = processors
    running: list[tuple[float, int, int]] = []
    waiting: list[int] = []
    starts = [0.0] * count
    arrived = 0
    while arrived < count or running:
        if arrived < count and (not running or submit_s[arrived] < running[0][0]):
            job = arrived
            arrived += 1
            if sizes[job] > most:
                waiting.append(job)
                continue
            now = submit_s[job]
            candidates = [job]
        else:
            now = running[0][0]
            while running and running[0][0] == now:
                _, job, cluster = heappop(running)
                free[cluster] += sizes[job]
            most = max(free)
            candidates = waiting
        place = 0
        while place < len(candidates) and most >= smallest:
            job = candidates[place]
            if sizes[job] > most:
                place += 1
                continue
            cluster = free.index(most)
            free[cluster] -= sizes[job]
            most = max(free)
            starts[job] = now
            heappush(running, (now + execution_s[job], job, cluster))
            del candidates[place]
    return starts
