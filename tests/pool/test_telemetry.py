"""Spans and series of the pool, by OpenTelemetry's own SDK; and instruments that fail."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from millpond.executors import Isolation
from millpond.outcome import Cancelled, Completed, Failed
from millpond.settings import Attempts, PoolSettings, RetryPolicy
from millpond.telemetry.tasks import TaskTelemetry
from millpond.tenancy.instrument import Status
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task, TaskContext

from . import work
from .support import Gate, Told, turn, until


class Collected:
    """An SDK whose exporters the test reads."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.instrument = TaskTelemetry(self.tracers, self.meters)

    @property
    def spans(self) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith("execute")]

    def series(self, name: str) -> dict[tuple[tuple[str, Any], ...], Any]:
        """The points of a metric, by their attributes."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            tuple(sorted((point.attributes or {}).items())): point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        }


@pytest.fixture
def collected() -> Iterator[Collected]:
    collected = Collected()
    yield collected
    collected.tracers.shutdown()
    collected.meters.shutdown()


async def on_loop(_: TaskContext) -> trace.Span:
    await turn()
    return trace.get_current_span()


def in_thread(_: TaskContext) -> trace.Span:
    return trace.get_current_span()


@pytest.mark.parametrize("run", [on_loop, in_thread])
async def test_an_attempt_is_a_child_of_the_span_it_was_submitted_in(
    run: Any, told: Told, collected: Collected
) -> None:
    tracer = collected.tracers.get_tracer("test")
    async with TenantPool(instrument=collected.instrument) as pool:
        with tracer.start_as_current_span("request") as request:
            child = told.task(run, "acme", key="resize")
            pool.submit(child)
        orphan = told.task(run, "acme")
        pool.submit(orphan)
        inside, alone = await told.all(child, orphan)
    assert isinstance(inside, Completed)
    assert isinstance(alone, Completed)
    spans = {span.context.span_id: span for span in collected.spans if span.context}
    assert isinstance(inside.result, trace.Span)
    span = spans[inside.result.get_span_context().span_id]
    assert span.name == "execute resize"
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id
    assert span.attributes == {"millpond.tenant": "acme", "millpond.executor": "resize", "millpond.attempt": 1}
    assert span.status.status_code is StatusCode.UNSET
    assert isinstance(alone.result, trace.Span)
    assert spans[alone.result.get_span_context().span_id].parent is None
    assert not trace.get_current_span().get_span_context().is_valid


async def test_no_attempt_sees_the_span_of_another(told: Told, collected: Collected) -> None:
    async def nested(_: TaskContext) -> tuple[trace.Span, trace.Span]:
        first = trace.get_current_span()
        await turn(2)
        return first, trace.get_current_span()

    async with TenantPool(instrument=collected.instrument) as pool:
        tasks = [told.task(nested) for _ in range(50)]
        pool.submit_many(tasks)
        outcomes = await told.all(*tasks)
    ids = set()
    for outcome in outcomes:
        assert isinstance(outcome, Completed)
        assert isinstance(outcome.result, tuple)
        first, second = outcome.result
        assert first is second
        ids.add(first.get_span_context().span_id)
    assert len(ids) == 50
    assert all(span.parent is None for span in collected.spans)


async def test_each_attempt_has_its_span_and_failures_say_what_they_were(told: Told, collected: Collected) -> None:
    class Unshowable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    async def fails(context: TaskContext) -> None:
        if context.attempt == 1:
            raise ConnectionError("gone")
        if context.attempt == 2:
            await asyncio.sleep(60)
        raise Unshowable

    policy = RetryPolicy(attempts=Attempts(count=3, min_delay=0))
    async with TenantPool(PoolSettings(retry_policy=policy), instrument=collected.instrument) as pool:
        task = told.task(fails, timeout=0.02, key="flaky")
        pool.submit(task)
        assert isinstance(await told.of(task), Failed)
    assert [(span.attributes or {})["millpond.attempt"] for span in collected.spans] == [1, 2, 3]
    assert [span.status.status_code for span in collected.spans] == [StatusCode.ERROR] * 3
    described = [span.status.description or "" for span in collected.spans]
    assert described[:2] == ["ConnectionError", "timeout"]
    assert described[2].endswith("Unshowable")
    assert collected.spans[0].events[0].name == "exception"
    assert (collected.spans[1].attributes or {})["millpond.cause"] == "timeout"


async def test_a_cancelled_attempt_is_no_error(told: Told, collected: Collected) -> None:
    gate = Gate()
    async with TenantPool(instrument=collected.instrument) as pool:
        task = told.task(gate)
        pool.submit(task)
        await gate.holds(1)
        pool.cancel(task)
        assert await told.of(task) == Cancelled("cancelled")
    (span,) = collected.spans
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["millpond.cause"] == "cancel"


async def test_attempts_are_counted_and_timed_by_executor_and_status_never_by_tenant(
    told: Told, collected: Collected
) -> None:
    gate = Gate()

    async def fine(_: TaskContext) -> None: ...

    def fails(_: TaskContext) -> None:
        raise ValueError

    async with TenantPool(PoolSettings(worker_count=20), instrument=collected.instrument) as pool:
        ended = [told.task(fine, f"tenant-{number}", key="fine") for number in range(5)]
        ended += [told.task(fails, f"tenant-{number}", key="broken") for number in range(3)]
        cancelled = told.task(gate, key="gate")
        pool.submit_many([*ended, cancelled])
        await told.all(*ended)
        await gate.holds(1)
        pool.cancel(cancelled)
        await told.of(cancelled)
        never_started = told.task(gate, key="gate")
        pool.submit(never_started)
        pool.cancel(never_started)
    expected = {("fine", "success"): 5, ("broken", "failed"): 3, ("gate", "cancelled"): 1}
    labels = {key: (("executor", key[0]), ("status", key[1])) for key in expected}
    counted = collected.series("millpond.tasks")
    assert {key: counted[labels[key]].value for key in expected} == expected
    timed = collected.series("millpond.task.duration")
    assert {key: timed[labels[key]].count for key in expected} == expected
    assert len(counted) == len(timed) == 3
    assert timed[labels["fine", "success"]].sum < 10


async def test_a_process_has_its_span_here(told: Told, collected: Collected) -> None:
    async with TenantPool(PoolSettings(process_count=1), instrument=collected.instrument) as pool:
        for run in (work.pid, work.killed):
            task = told.task(run, isolation="process")
            pool.submit(task)
            await told.of(task)
    assert [span.status.status_code for span in collected.spans] == [StatusCode.UNSET, StatusCode.ERROR]


async def test_the_loops_lag_is_a_gauge(collected: Collected) -> None:
    async with TenantPool(PoolSettings(blocked_after=0.02), instrument=collected.instrument):
        await until(lambda: collected.series("millpond.loop.lag"))


async def test_a_task_may_belong_to_another_context_than_its_submitters(told: Told, collected: Collected) -> None:
    parent = trace.NonRecordingSpan(
        trace.SpanContext(trace_id=7, span_id=8, is_remote=True, trace_flags=trace.TraceFlags(1))
    )
    instrument = TaskTelemetry(
        collected.tracers, collected.meters, parent_of=lambda _: trace.set_span_in_context(parent, contexts.Context())
    )
    async with TenantPool(instrument=instrument) as pool:
        task = told.task(on_loop)
        pool.submit(task)
        await told.of(task)
    (span,) = collected.spans
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (7, 8)


class Broken:
    """An instrument that fails at one place."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.failed = 0

    def _fail_at(self, place: str) -> None:
        if place == self.place:
            self.failed += 1
            raise ZeroDivisionError(place)

    def submitted(self, task: Task) -> None:
        self._fail_at("submitted")

    @contextlib.contextmanager
    def attempt(self, task: Task, context: TaskContext, captured: object | None) -> Iterator[None]:
        self._fail_at("enter")
        if self.place == "swallow":
            with contextlib.suppress(BaseException):
                self.failed += 1
                yield
            return
        try:
            yield
        finally:
            self._fail_at("exit")

    def finished(self, task: Task, status: Status, seconds: float) -> None:
        self._fail_at("finished")

    def lagged(self, seconds: float) -> None:
        self._fail_at("lagged")


@pytest.mark.parametrize("isolation", ["loop", "thread"])
@pytest.mark.parametrize("place", ["submitted", "enter", "exit", "swallow", "finished", "lagged"])
async def test_an_instrument_that_fails_or_swallows_changes_nothing(
    place: str, isolation: Isolation, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    async def fine(_: TaskContext) -> str:
        return "fine"

    async def fails(_: TaskContext) -> None:
        raise KeyError("mine")

    def fine_in_thread(_: TaskContext) -> str:
        return "fine"

    def fails_in_thread(_: TaskContext) -> None:
        raise KeyError("mine")

    broken = Broken(place)
    async with TenantPool(PoolSettings(blocked_after=0.02), instrument=broken) as pool:
        on_loop = isolation == "loop"
        tasks = [told.task(fine if on_loop else fine_in_thread), told.task(fails if on_loop else fails_in_thread)]
        pool.submit_many(tasks)
        well, ill = await told.all(*tasks)
        await until(lambda: broken.failed)
    assert well == Completed("fine")
    assert isinstance(ill, Failed)
    assert isinstance(ill.error, KeyError)
    assert ("instrument failed" in caplog.text) == (place != "swallow")
