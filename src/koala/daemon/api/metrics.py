"""Metrics for monitoring in the OpenMetrics text format, from the service and from the requests.

Labels are names of states, sites, queues and routes: a bounded set that the grid's owner chose. No job, no user and
no text from a caller is ever a label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from koala.daemon.service.sites.metrics import Metrics
from koala.version import __version__

__all__ = ["CONTENT_TYPE_LATEST", "RequestNumbers", "exposition"]

LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class RequestNumbers:
    """How many requests each route answered, with which status, and how long they took."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "koala_http_requests",
            "Requests answered, by method, route and status; status 0 is an answer that was never begun.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "koala_http_request_seconds",
            "From the request's head to the end of the answer, by route.",
            ["route"],
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )

    def count(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count a request. ``route`` is a template, never a path."""
        self._requests.labels(method=method, route=route, status=str(status)).inc()
        self._seconds.labels(route=route).observe(took_s)


def exposition(numbers: Metrics, requests: RequestNumbers, *, streams_open: int) -> bytes:
    """Return all metrics as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gathered([*_of_service(numbers), _gauge("streams_open", "Event streams open.", streams_open)]))
    registry.register(_Gathered(list(requests.registry.collect())))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text


class _Gathered(Collector):
    """Metric families that are already complete."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families

    def describe(self) -> list[Metric]:
        return []


def _of_service(numbers: Metrics) -> Iterator[Metric]:
    yield _labelled("build_info", "The daemon's version.", "version", {__version__: 1})
    yield _gauge("up_since_timestamp_seconds", "When the daemon was started.", numbers.started_at)
    yield _gauge("working", "1 while the daemon can answer calls, 0 while its store is away.", int(numbers.working))
    yield _labelled("jobs", "Jobs on record by state, ended ones included.", "state", numbers.jobs)
    yield _labelled("queue_jobs", "Jobs in each queue.", "queue", numbers.queues)
    yield from _of_sites(numbers)
    yield _gauge("transfers_active", "Running transfers of files or chunks.", numbers.transfers_active)
    yield _gauge(
        "transfers_arrived_bytes", "Bytes that the active transfers have moved so far.", numbers.arriving_bytes
    )
    yield _counter("events_handled", "Events that the scheduler has handled.", numbers.events_handled)
    yield _counter("commits", "Transactions of the store.", numbers.commits)
    yield _counter("recoveries", "Recoveries after a failed commit.", numbers.recoveries)
    yield _gauge("commands_owed", "Commands on record that are not performed yet.", numbers.commands_owed)
    yield _gauge("journal_entries", "The number of the newest journal entry.", numbers.journal_entries)


def _of_sites(numbers: Metrics) -> Iterator[Metric]:
    processors = GaugeMetricFamily(
        "koala_site_processors", "Processors of a site: held by us or by others, idle, and in total.",
        labels=["site", "holder"],
    )  # fmt: skip
    states = GaugeMetricFamily(
        "koala_site_state", "1 if it holds: the site answers, is trusted, is drained.", labels=["site", "state"]
    )
    errors = GaugeMetricFamily("koala_site_errors", "Errors of the site in a row.", labels=["site"])
    calls = CounterMetricFamily(
        "koala_site_calls",
        "Calls of the site's batch system by purpose; a listing is several of its commands.",
        labels=["site", "call"],
    )
    set_aside = GaugeMetricFamily(
        "koala_site_commands_set_aside", "Commands that an error inside Koala keeps from the site.", labels=["site"]
    )
    gpus = GaugeMetricFamily(
        "koala_site_gpus", "GPUs of a site by kind: idle, and in total.", labels=["site", "kind", "holder"]
    )
    processor_s = CounterMetricFamily(
        "koala_site_processor_seconds",
        "Processor time of our components before they started: gained by claiming late, wasted until the start.",
        labels=["site", "use"],
    )
    early_s = CounterMetricFamily(
        "koala_site_early_processor_seconds",
        "The share of jobs that claimed earlier than planned.",
        labels=["site", "use"],
    )
    gpu_s = CounterMetricFamily(
        "koala_site_gpu_seconds", "GPU time of our components there that have ended.", labels=["site"]
    )
    for site in numbers.sites:
        if site.gpus or site.gpu_s:
            gpu_s.add_metric([site.name], site.gpu_s)
        early_s.add_metric([site.name, "gained"], site.early_gained_processor_s)
        early_s.add_metric([site.name, "wasted"], site.early_wasted_processor_s)
        processor_s.add_metric([site.name, "gained"], site.gained_processor_s)
        processor_s.add_metric([site.name, "wasted"], site.wasted_processor_s)
        for kind, total in site.gpus.items():
            gpus.add_metric([site.name, kind, "idle"], site.gpus_idle.get(kind, 0))
            gpus.add_metric([site.name, kind, "total"], total)
        set_aside.add_metric([site.name], site.set_aside)
        held = {"ours": site.ours, "others": site.others, "idle": site.idle, "total": site.processors}
        for holder, count in held.items():
            processors.add_metric([site.name, holder], count)
        for state, holds in (("answers", site.answers), ("trusted", site.trusted), ("drained", site.drained)):
            states.add_metric([site.name, state], int(holds))
        errors.add_metric([site.name], site.errors)
        for call, count in site.calls.items():
            calls.add_metric([site.name, call], count)
    yield from (processors, states, errors, set_aside, calls, gpus, processor_s, early_s, gpu_s)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"koala_{name}", help_text, value=value)


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(f"koala_{name}", help_text, value=value)


def _labelled(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"koala_{name}", help_text, labels=[label])
    for each, value in values.items():
        family.add_metric([each], value)
    return family
