"""What the worker's rooms announce, as metrics. Series are bounded: labels are queues, states, loops and few keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, assert_never

from opentelemetry import metrics

from millpond.events import (
    DatabaseLost,
    Event,
    JobsClaimed,
    JobsPromoted,
    JobsReaped,
    JobsSettled,
    JobsUnclaimable,
    LeaseLost,
    WorkerRegistered,
)

_KEYS_NAMED: Final = 20
"""Unclaimable executor keys with a series of their own; rows could name any number of them. The rest is "other"."""


class WorkerMetrics:
    """An observer for `Worker(observe=…)` that counts through the OpenTelemetry API: free until an SDK is set up."""

    def __init__(self, provider: metrics.MeterProvider | None = None) -> None:
        """`provider`: where the series go; by default, wherever the process has set OpenTelemetry up to send them."""
        meter = (provider or metrics.get_meter_provider()).get_meter("millpond.worker")
        self._claimed = meter.create_counter("millpond.jobs.claimed", "{job}", "Jobs taken from the store.")
        self._settled = meter.create_counter("millpond.jobs.settled", "{job}", "Outcomes written, by new state.")
        self._stale = meter.create_counter(
            "millpond.jobs.stale", "{job}", "Outcomes whose claim was lost: not written."
        )
        self._promoted = meter.create_counter("millpond.jobs.promoted", "{job}", "Due jobs made available.")
        self._reaped = meter.create_counter("millpond.jobs.reaped", "{job}", "Jobs of lost workers, by new state.")
        self._unclaimable = meter.create_gauge(
            "millpond.jobs.unclaimable", "{job}", "Jobs at the head of tenants' lines whose executor is not here."
        )
        self._seconds = meter.create_histogram("millpond.database.duration", "s", "Time of claims and settlements.")
        self._outages = meter.create_counter("millpond.database.failures", "{failure}", "Calls that got no answer.")
        self._registered = meter.create_counter("millpond.worker.registrations", "{registration}", "Boots.")
        self._leases_lost = meter.create_counter("millpond.worker.leases_lost", "{lease}", "Leases that ran out.")
        self._named: dict[str, set[str]] = {}

    def __call__(self, event: Event) -> None:
        """Count one fact."""
        match event:
            case JobsClaimed(queue, jobs, seconds):
                self._claimed.add(jobs, {"queue": queue})
                self._seconds.record(seconds, {"operation": "claim"})
            case JobsSettled(states, stale, seconds):
                for state, jobs in states.items():
                    self._settled.add(jobs, {"state": state})
                self._stale.add(stale)
                self._seconds.record(seconds, {"operation": "settle"})
            case JobsPromoted(jobs):
                self._promoted.add(jobs)
            case JobsReaped(available, discarded):
                self._reaped.add(available, {"state": "available"})
                self._reaped.add(discarded, {"state": "discarded"})
            case JobsUnclaimable(queue, seen):
                self._gauge_unclaimable(queue, seen)
            case DatabaseLost(loop):
                self._outages.add(1, {"loop": loop})
            case LeaseLost():
                self._leases_lost.add(1)
            case WorkerRegistered():
                self._registered.add(1)
            case _:
                assert_never(event)

    def _gauge_unclaimable(self, queue: str, seen: Mapping[str, int]) -> None:
        """Set the gauge of each key, and back to zero those that are gone."""
        named = self._named.setdefault(queue, set())
        waiting = Counter(dict.fromkeys(named, 0))
        for key, jobs in Counter(seen).most_common():
            if key not in named and len(named) >= _KEYS_NAMED:
                key = "other"
            named.add(key)
            waiting[key] += jobs
        for key, jobs in waiting.items():
            self._unclaimable.set(jobs, {"queue": queue, "executor": key})
