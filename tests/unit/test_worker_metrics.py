"""What the worker announces, as OpenTelemetry's SDK sees it."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

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
from millpond.telemetry.worker import WorkerMetrics


def series(*events: Event) -> dict[tuple[str, tuple[tuple[str, object], ...]], float]:
    """Every series after these events: (name, labels) → value, or count for a histogram."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics = WorkerMetrics(provider)
    for event in events:
        metrics(event)
    data = reader.get_metrics_data()
    provider.shutdown()
    assert data is not None
    return {
        (metric.name.removeprefix("millpond."), tuple(sorted((point.attributes or {}).items()))): getattr(
            point, "value", getattr(point, "count", 0)
        )
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def labels(**values: object) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(values.items()))


def test_every_fact_is_counted() -> None:
    seen = series(
        WorkerRegistered(uuid4(), "here:1"),
        JobsClaimed("default", 7, 0.01),
        JobsSettled({"completed": 5, "retryable": 1}, stale=1, seconds=0.01),
        JobsPromoted(3),
        JobsReaped(available=2, discarded=1),
        LeaseLost(uuid4(), "why"),
        DatabaseLost("claimer", "why", 0.1),
    )
    assert seen["jobs.claimed", labels(queue="default")] == 7
    assert seen["jobs.settled", labels(state="completed")] == 5
    assert seen["jobs.settled", labels(state="retryable")] == 1
    assert seen["jobs.stale", ()] == 1
    assert seen["jobs.promoted", ()] == 3
    assert seen["jobs.reaped", labels(state="discarded")] == 1
    assert seen["worker.leases_lost", ()] == 1
    assert seen["worker.registrations", ()] == 1
    assert seen["database.failures", labels(loop="claimer")] == 1
    assert seen["database.duration", labels(operation="claim")] == 1


def unclaimable(*seen: Mapping[str, int]) -> dict[str, float]:
    return {
        str(dict(attributes)["executor"]): value
        for (name, attributes), value in series(*(JobsUnclaimable("q", each) for each in seen)).items()
        if name == "jobs.unclaimable"
    }


def test_keys_that_nobody_has_are_a_gauge_that_goes_back_to_zero() -> None:
    assert unclaimable({"a": 3, "b": 1}) == {"a": 3, "b": 1}
    assert unclaimable({"a": 3, "b": 1}, {"a": 2}) == {"a": 2, "b": 0}
    assert unclaimable({"a": 3}, {}) == {"a": 0}


def test_however_many_keys_rows_name_the_series_are_few() -> None:
    gauges = unclaimable({f"key {n}": 1 for n in range(1_000)}, {f"other {n}": 2 for n in range(1_000)})
    assert len(gauges) == 21
    assert gauges["other"] == 2_000
