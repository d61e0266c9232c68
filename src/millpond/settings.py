"""Every option: frozen, typed, checked when made, with default, unit and bounds. Nothing here reads the environment."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from millpond.errors import SettingsError
from millpond.faults import fault_of_name
from millpond.job import DEFAULT_QUEUE, MAX_NAME

DEFAULT_SCHEMA = "millpond"
"""The schema that holds everything of one installation, `alembic_version` included."""

MAX_SCHEMA_BYTES = 63
"""One less than NAMEDATALEN: Postgres would cut a longer identifier without an error."""

MAX_SECONDS = 10 * 365 * 86_400.0
"""Ten years: longer than any sensible interval, short enough for every timestamp and timer."""


def checked_whole(name: str, value: object, *, at_least: int, at_most: int) -> int:
    """`value`, when it is an int within its bounds; else a SettingsError that names them."""
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
        raise SettingsError(name, value, f"must be a whole number from {at_least:,} to {at_most:,}.")
    return value


def checked_seconds(name: str, value: object, *, at_least: float = 0.0, at_most: float = MAX_SECONDS) -> float:
    """`value`, when it is a finite number of seconds within its bounds; else a SettingsError that names them."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not at_least <= value <= at_most
    ):
        raise SettingsError(name, value, f"must be a number of seconds from {at_least:g} to {at_most:g}.")
    return float(value)


def checked_flag(name: str, value: object) -> bool:
    """`value`, when it is True or False; else a SettingsError: a text such as "no" would count as True."""
    if not isinstance(value, bool):
        raise SettingsError(name, value, "must be True or False.")
    return value


def checked_schema(value: object) -> str:
    """`value`, when Postgres can use it, quoted, as the name of a schema; else a SettingsError."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise SettingsError("schema", value, "must be a non-empty text without NUL.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise SettingsError("schema", value, "must be text that UTF-8 can hold (no lone surrogates).") from error
    if size > MAX_SCHEMA_BYTES:
        raise SettingsError("schema", value, f"must take at most {MAX_SCHEMA_BYTES} bytes; Postgres would cut it.")
    if value.startswith("pg_"):
        raise SettingsError("schema", value, "must not start with pg_, which Postgres keeps for itself.")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How often the pool itself runs a task, and how long it waits in between."""

    count: int = 1
    """Runs in all, ≥ 1. 1 delegates retries to whoever feeds the pool: the store keeps its own count of attempts, so
    a store-fed pool with a count above 1 multiplies them (and the worker warns)."""
    min_delay: float = 1.0
    """Seconds: the ceiling of the first wait, doubled for each next one."""
    max_delay: float = 60.0
    """Seconds: the ceiling of any wait. Waits are uniform in [0, ceiling] (full jitter)."""

    def __post_init__(self) -> None:
        checked_whole("retry_policy.attempts.count", self.count, at_least=1, at_most=1_000_000)
        checked_seconds("retry_policy.attempts.min_delay", self.min_delay)
        checked_seconds("retry_policy.attempts.max_delay", self.max_delay)
        if self.max_delay < self.min_delay:
            raise SettingsError(
                "retry_policy.attempts.max_delay", self.max_delay, f"must be ≥ min_delay ({self.min_delay:g})."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed task is run again by the pool."""

    attempts: Attempts = field(default_factory=Attempts)

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, Attempts):
            raise SettingsError("retry_policy.attempts", self.attempts, "must be an Attempts.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """The tenant pool's options. Times are in seconds."""

    worker_count: int = 100
    """Tasks that run at once, over all tenants. Effective: min(sum of tenant limits, worker_count)."""
    task_queue_size: int = 10_000
    """Tasks that may wait, over all tenants."""
    tenant_queue_size: int = 2_000
    """Tasks that may wait for one tenant."""
    graceful_timeout: float = 20.0
    """How long stop lets running tasks end by themselves before it cancels them. The default leaves time to cancel and
    to write outcomes within the 30 s after which Kubernetes kills."""
    cancel_timeout: float = 5.0
    """How long stop then waits for cancelled tasks to end before it writes them off."""
    task_timeout: float | None = None
    """How long one attempt may take when the task does not say; None: for ever."""
    tenant_refresh_interval: float = 10.0
    """How often the tenant provider is asked again."""
    default_worker_limit: int | None = None
    """The limit of a tenant whose own is ≤ 0 or not known; None: worker_count, so that a lone tenant may use it all."""
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    process_count: int | None = None
    """Child processes, for tasks with isolation="process"; None: one for each core."""
    blocked_after: float | None = 1.0
    """How long the event loop may stand still before what blocks it is logged; None: nobody watches."""

    def __post_init__(self) -> None:
        checked_whole("worker_count", self.worker_count, at_least=1, at_most=100_000)
        checked_whole("task_queue_size", self.task_queue_size, at_least=1, at_most=10_000_000)
        checked_whole("tenant_queue_size", self.tenant_queue_size, at_least=1, at_most=10_000_000)
        checked_seconds("graceful_timeout", self.graceful_timeout)
        checked_seconds("cancel_timeout", self.cancel_timeout)
        checked_seconds("tenant_refresh_interval", self.tenant_refresh_interval, at_least=0.01)
        if self.task_timeout is not None:
            checked_seconds("task_timeout", self.task_timeout, at_least=0.001)
        if self.default_worker_limit is not None:
            checked_whole("default_worker_limit", self.default_worker_limit, at_least=1, at_most=100_000)
        if self.process_count is not None:
            checked_whole("process_count", self.process_count, at_least=1, at_most=10_000)
        if self.blocked_after is not None:
            checked_seconds("blocked_after", self.blocked_after, at_least=0.01)
        if not isinstance(self.retry_policy, RetryPolicy):
            raise SettingsError("retry_policy", self.retry_policy, "must be a RetryPolicy.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The worker's options. Times are in seconds."""

    schema: str = DEFAULT_SCHEMA
    queues: tuple[str, ...] = (DEFAULT_QUEUE,)
    """Queues to claim from, each with its turn."""
    pool: PoolSettings = field(default_factory=PoolSettings)
    poll_interval: float = 1.0
    """How often an idle worker looks for jobs by itself; notifications only make it faster."""
    listen: bool = True
    """Whether to LISTEN for wake-ups, on a connection of its own; off, polling alone finds everything."""
    listen_dsn: str | None = None
    """Where to LISTEN when the worker's DSN leads through a pooler. It notices a pooler by itself, and polls if this is
    not set."""
    stale_timeout: float = 30.0
    """The lease: how long the worker may be silent before its rows are taken back."""
    beat_interval: float = 5.0
    """How often the worker says that it lives, from a thread and a connection of its own."""
    settle_size: int = 1_000
    """Outcomes that are written at once without waiting for more."""
    settle_interval: float = 0.02
    """How long the first outcome of a batch may wait for others."""
    claim_size: int = 1_000
    """Most jobs that one statement claims."""
    base_backoff: float = 1.0
    """Wait before the second attempt; doubled for each next one, ± 10 %."""
    max_backoff: float = 3_600.0
    """Longest wait between two attempts."""
    statement_timeout: float = 30.0
    """Deadline of every call to the database, with connecting and with its answer. Kept here, and a little earlier by
    the server, unless a pooler stands before it: there nothing may be set."""
    exit_when_done: bool = False
    """Stop when nothing is claimable, nothing runs and no retry waits."""

    def __post_init__(self) -> None:
        checked_schema(self.schema)
        self._check_queues()
        if not isinstance(self.pool, PoolSettings):
            raise SettingsError("pool", self.pool, "must be a PoolSettings.")
        checked_flag("listen", self.listen)
        checked_flag("exit_when_done", self.exit_when_done)
        if self.listen_dsn is not None and not isinstance(self.listen_dsn, str):
            kind = type(self.listen_dsn).__qualname__  # and not the value, which may hold a password
            raise SettingsError("listen_dsn", f"a value of type {kind}", "must be a DSN as text, or None.")
        checked_seconds("poll_interval", self.poll_interval, at_least=0.01, at_most=3_600.0)
        checked_seconds("stale_timeout", self.stale_timeout, at_least=0.1, at_most=86_400.0)
        checked_seconds("beat_interval", self.beat_interval, at_least=0.01, at_most=86_400.0)
        checked_whole("settle_size", self.settle_size, at_least=1, at_most=10_000)
        checked_seconds("settle_interval", self.settle_interval, at_most=60.0)
        checked_whole("claim_size", self.claim_size, at_least=1, at_most=10_000)
        checked_seconds("base_backoff", self.base_backoff)
        checked_seconds("max_backoff", self.max_backoff)
        if self.max_backoff < self.base_backoff:
            raise SettingsError("max_backoff", self.max_backoff, f"must be ≥ base_backoff ({self.base_backoff:g}).")
        checked_seconds("statement_timeout", self.statement_timeout, at_least=0.1, at_most=3_600.0)
        if (self.beat_interval + self.settle_interval) * 1.1 > self.stale_timeout / 3:
            raise SettingsError(
                "stale_timeout",
                self.stale_timeout,
                "must be at least three times beat_interval + settle_interval and 10 % jitter: "
                f"{(self.beat_interval + self.settle_interval) * 3.3:g} s. One late beat must not be taken for death.",
            )

    def _check_queues(self) -> None:
        if not isinstance(self.queues, tuple) or not self.queues:
            raise SettingsError("queues", self.queues, "must be a tuple of at least one queue name.")
        for name in self.queues:
            if (fault := fault_of_name(name, MAX_NAME)) is not None:
                raise SettingsError("queues", name, f"a queue's name {fault}")
        if len(set(self.queues)) != len(self.queues):
            raise SettingsError("queues", self.queues, "must name each queue once.")
