"""Settings that cannot hold are refused, by name, value and bound."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.errors import SettingsError
from millpond.settings import Attempts, PoolSettings, RetryPolicy, WorkerSettings, checked_schema


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (PoolSettings, "worker_count", 0),
        (PoolSettings, "worker_count", True),
        (PoolSettings, "worker_count", 1.5),
        (PoolSettings, "task_queue_size", -1),
        (PoolSettings, "tenant_queue_size", 0),
        (PoolSettings, "graceful_timeout", float("nan")),
        (PoolSettings, "task_timeout", 0),
        (PoolSettings, "tenant_refresh_interval", "often"),
        (PoolSettings, "default_worker_limit", 0),
        (PoolSettings, "retry_policy", None),
        (PoolSettings, "cancel_timeout", -1),
        (PoolSettings, "process_count", 0),
        (PoolSettings, "blocked_after", 0.0),
        (PoolSettings, "graceful_timeout", True),
        (PoolSettings, "cancel_timeout", False),
        (PoolSettings, "task_timeout", True),
        (PoolSettings, "tenant_refresh_interval", True),
        (PoolSettings, "process_count", True),
        (PoolSettings, "blocked_after", True),
        (RetryPolicy, "attempts", None),
        (RetryPolicy, "attempts", 3),
        (Attempts, "count", 0),
        (Attempts, "min_delay", -1.0),
        (Attempts, "max_delay", float("inf")),
        (WorkerSettings, "schema", "a" * 64),
        (WorkerSettings, "queues", ()),
        (WorkerSettings, "queues", ["default"]),
        (WorkerSettings, "queues", ("default", "default")),
        (WorkerSettings, "pool", None),
        (WorkerSettings, "pool", {"worker_count": 3}),
        (WorkerSettings, "listen", "no"),
        (WorkerSettings, "listen", 0),
        (WorkerSettings, "exit_when_done", "x"),
        (WorkerSettings, "exit_when_done", None),
        (WorkerSettings, "base_backoff", True),
        (WorkerSettings, "poll_interval", 0),
        (WorkerSettings, "settle_size", 0),
        (WorkerSettings, "claim_size", 10_001),
        (WorkerSettings, "statement_timeout", 0.0),
    ],
)
def test_the_error_names_the_field_the_value_and_the_bound(kind: Any, field: str, value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        kind(**{field: value})
    assert caught.value.field.endswith(field)
    assert field in str(caught.value)
    assert repr(value)[:40] in str(caught.value)
    assert "must" in caught.value.remedy


def test_delays_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(SettingsError, match="must be ≥ min_delay"):
        Attempts(min_delay=10, max_delay=1)


def test_backoffs_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"^max_backoff = 1: must be ≥ base_backoff \(2\)"):
        WorkerSettings(base_backoff=2, max_backoff=1)
    WorkerSettings(base_backoff=2, max_backoff=2)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", "\ud800", None, 3, ["default"]])
def test_queues_are_named_as_jobs_may_name_them(name: Any) -> None:
    with pytest.raises(SettingsError, match=r"^queues = .*: a queue's name (must|contains)"):
        WorkerSettings(queues=("default", name))


def test_a_dsn_is_not_shown() -> None:
    with pytest.raises(SettingsError, match=r"^listen_dsn = .*bytes.*: must be a DSN as text") as caught:
        WorkerSettings(listen_dsn=b"password=secret")  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


def test_what_a_stop_may_take_ends_before_kubernetes_kills() -> None:
    pool = PoolSettings()
    assert pool.graceful_timeout + pool.cancel_timeout < 30


def test_a_lease_that_a_late_beat_could_lose_is_refused() -> None:
    with pytest.raises(SettingsError, match="three times beat_interval"):
        WorkerSettings(stale_timeout=10, beat_interval=5)
    WorkerSettings(stale_timeout=30, beat_interval=5)


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "pg_x", "ö" * 32, None])
def test_a_schema_name_that_postgres_would_change_is_refused(name: Any) -> None:
    with pytest.raises(SettingsError):
        checked_schema(name)


@pytest.mark.parametrize("name", ['We ird"x', "We ird;--schema", "ö" * 31, "%s", "{}"])
def test_odd_schema_names_are_fine(name: str) -> None:
    assert checked_schema(name) == name
