"""A span for each attempt of the pool, how long it took, how it ended. Tenants are on spans, never on series."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, StatusCode, Tracer
from opentelemetry.util.types import Attributes

from millpond.tenancy.instrument import Status
from millpond.tenancy.task import Cause, Task, TaskContext

_SCOPE: Final = "millpond.pool"

_OF_SOMEBODYS_WILL: Final = (Cause.CANCEL, Cause.STOP)
"""An attempt that was asked to end for one of these has not failed."""


class TaskTelemetry:
    """An instrument for `TenantPool(instrument=…)`, through the OpenTelemetry API: free until an SDK is set up.

    Spans are children of the span in which the task was submitted, if there was one, and are current while it runs.
    """

    def __init__(
        self,
        tracers: trace.TracerProvider | None = None,
        meters: metrics.MeterProvider | None = None,
        *,
        parent_of: Callable[[Task], Context | None] = lambda _: None,
    ) -> None:
        """By default spans and series go wherever the process has set OpenTelemetry up to send them.

        `parent_of` finds the context that a task belongs to when it is not that of whoever submits it.
        """
        self._tracer = (tracers or trace.get_tracer_provider()).get_tracer(_SCOPE)
        self._parent_of = parent_of
        meter = (meters or metrics.get_meter_provider()).get_meter(_SCOPE)
        self._duration = meter.create_histogram("millpond.task.duration", "s", "How long attempts took.")
        self._finished = meter.create_counter("millpond.tasks", "{attempt}", "Attempts that have ended, by status.")
        self._lag = meter.create_gauge("millpond.loop.lag", "s", "How long the event loop took to come round.")

    def submitted(self, task: Task) -> Context:
        """The context that the attempts belong to."""
        return self._parent_of(task) or contexts.get_current()

    def attempt(self, task: Task, context: TaskContext, captured: object | None) -> AbstractContextManager[object]:
        """A span around the attempt."""
        return _AttemptSpan(self._tracer, task, context, captured if isinstance(captured, Context) else Context())

    def finished(self, task: Task, status: Status, seconds: float) -> None:
        """Count it."""
        labels = {"executor": task.key, "status": status}
        self._finished.add(1, labels)
        self._duration.record(seconds, labels)

    def lagged(self, seconds: float) -> None:
        """Show it."""
        self._lag.set(seconds)


class _AttemptSpan:
    """Starts a span and makes it current; ends it with what became of the attempt."""

    def __init__(self, tracer: Tracer, task: Task, context: TaskContext, parent: Context) -> None:
        self._tracer = tracer
        self._task = task
        self._context = context
        self._parent = parent

    def __enter__(self) -> Span:
        name = f"execute {self._task.key}" if self._task.key else "execute"
        self._span = self._tracer.start_span(name, self._parent, attributes=self._attributes())
        self._token = contexts.attach(trace.set_span_in_context(self._span, self._parent))
        return self._span

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        contexts.detach(self._token)
        cause = self._context.cause
        if cause is not None:
            self._span.set_attribute("millpond.cause", cause.value)
        if kind is not None and error is not None and cause not in _OF_SOMEBODYS_WILL:
            with suppress(Exception):  # an exception that cannot even be shown
                self._span.record_exception(error)
            self._span.set_status(StatusCode.ERROR, "timeout" if cause is Cause.TIMEOUT else kind.__qualname__)
        self._span.end()

    def _attributes(self) -> Attributes:
        return {
            "millpond.tenant": self._task.tenant,
            "millpond.executor": self._task.key,
            "millpond.attempt": self._context.attempt,
        }
