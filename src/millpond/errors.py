"""Every exception that millpond raises on purpose, under one root. Each message names the remedy.

MillpondError
├── SettingsError                a setting out of its bounds
├── RegistryError
│   ├── DuplicateExecutor        two executors for one key
│   ├── UnknownExecutor          no executor for a key
│   └── InvalidExecutor          not something that can be executed
├── InvalidJob                   a job that cannot be stored as asked
│   ├── InvalidArgs              args that JSON or jsonb cannot hold; named by path
│   └── ArgsTooLarge
├── UnsupportedConnection        not a connection we can write through
├── SubmitError                  the pool does not take this task, now
│   ├── UnknownTenant
│   ├── TenantQueueFull
│   ├── PoolQueueFull
│   ├── PoolStopping
│   └── ForkedPool               this process was forked from the pool's
├── TaskTimeout                  an attempt ran longer than its timeout
├── ProcessDied                  the child process of an attempt ended without an answer
├── ClaimLost                    the row is no longer this worker's
└── StoreError                   the database is not usable as it is
    ├── DatabaseUnreachable      no connection
    │   └── AnswerLost           no answer: what was asked for may have been done
    ├── DatabaseUnsuitable       encoding, version
    └── SchemaMismatch           not migrated, or to another revision than this code knows
"""

from __future__ import annotations

from collections.abc import Iterable


class MillpondError(Exception):
    """The root: catching it catches everything that millpond raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as it is, since most are made from other things than their message: they cross processes."""
        return _remade, (type(self), self.args, vars(self))


def _remade(kind: type[MillpondError], args: tuple[object, ...], state: dict[str, object]) -> MillpondError:
    error = kind.__new__(kind, *args)
    error.args = args  # OSError's leaves them to its __init__
    vars(error).update(state)
    return error


def _shown(value: object, limit: int = 80) -> str:
    """The value for a message: never raises, never long."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything; the message must still come
        text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class SettingsError(MillpondError, ValueError):
    """A setting outside its bounds. Names the field, the value and the bound."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(f"{field} = {_shown(value)}: {remedy}")
        self.field, self.value, self.remedy = field, value, remedy


class RegistryError(MillpondError):
    """The registry cannot do what was asked."""


def _known(keys: Iterable[str]) -> str:
    listed = ", ".join(repr(key) for key in sorted(keys))
    return f"Registered keys: {listed}." if listed else "No executor is registered."


class DuplicateExecutor(RegistryError, ValueError):
    """A key may be registered once: two executors for one key would make a row mean two things."""

    def __init__(self, key: str, known: Iterable[str]) -> None:
        super().__init__(f"An executor is already registered for {key!r}; choose another key. {_known(known)}")
        self.key = key


class UnknownExecutor(RegistryError, LookupError):
    """No executor is registered for this key."""

    def __init__(self, key: str, known: Iterable[str]) -> None:
        super().__init__(f"No executor is registered for {key!r}; register it, or correct the key. {_known(known)}")
        self.key = key


class InvalidExecutor(RegistryError, TypeError):
    """Not an async function, a plain function, or an object with such an `execute`."""


class InvalidJob(MillpondError, ValueError):
    """A job that cannot be stored as asked. Raised before any SQL is sent."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(f"{field} = {_shown(value)}: {remedy}")
        self.field, self.value, self.remedy = field, value, remedy


class InvalidArgs(InvalidJob, TypeError):
    """Args that JSON or jsonb cannot hold, or that are not what the executor asked for. `field` is the path of the
    value at fault: `args.items[3].price`. The value itself is neither kept nor shown: args may hold secrets."""

    def __init__(self, path: str, problem: str) -> None:
        MillpondError.__init__(self, f"{path}: {problem}")
        self.field, self.value, self.remedy = path, None, problem


class ArgsTooLarge(InvalidJob):
    """Args longer than the limit, in bytes of JSON."""

    def __init__(self, size: int, limit: int) -> None:
        MillpondError.__init__(
            self,
            f"args take {size:,} bytes as JSON; the limit is {limit:,}. "
            "Store the data elsewhere and enqueue a reference to it, or raise max_args_bytes.",
        )
        self.field, self.value, self.remedy = "args", size, "store the data elsewhere and enqueue a reference"
        self.size, self.limit = size, limit


class UnsupportedConnection(MillpondError, TypeError):
    """Something that is not one of the connections we can write through."""


class SubmitError(MillpondError):
    """The pool does not take this task. Nothing was kept of it; its callback will not be called."""

    def __init__(self, tenant: str, message: str) -> None:
        super().__init__(message)
        self.tenant = tenant


class UnknownTenant(SubmitError):
    """The provider does not list this tenant."""

    def __init__(self, tenant: str) -> None:
        super().__init__(tenant, f"Tenant {tenant!r} is not active; the provider does not list it.")


class TenantQueueFull(SubmitError):
    """This tenant already has tenant_queue_size tasks waiting; others may still have room."""

    def __init__(self, tenant: str, capacity: int) -> None:
        super().__init__(tenant, f"Tenant {tenant!r} has {capacity} tasks waiting (tenant_queue_size); submit later.")
        self.capacity = capacity


class PoolQueueFull(SubmitError):
    """The pool already has task_queue_size tasks waiting, over all tenants."""

    def __init__(self, tenant: str, capacity: int) -> None:
        super().__init__(tenant, f"The pool has {capacity} tasks waiting (task_queue_size); submit later.")
        self.capacity = capacity


class PoolStopping(SubmitError):
    """The pool is stopping, has stopped, or was not started."""

    def __init__(self, tenant: str) -> None:
        super().__init__(tenant, "The pool is not running: it takes tasks between start and stop only.")


class ForkedPool(SubmitError):
    """A pool lives in the process that started it: a forked child has its memory, but not its loop and threads."""

    def __init__(self, tenant: str) -> None:
        super().__init__(
            tenant,
            "This process was forked from the pool's; it must start a pool of its own "
            "(or be spawned, or hand the work back to its parent).",
        )


class TaskTimeout(MillpondError, TimeoutError):
    """An attempt ran longer than its timeout."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The attempt did not end within its timeout of {seconds:g} s.")
        self.seconds = seconds


class ProcessDied(MillpondError):
    """The child process of an attempt ended without an answer: killed, out of memory, or crashed."""

    def __init__(self, exit_code: int | None) -> None:
        how = f"by signal {-exit_code}" if exit_code is not None and exit_code < 0 else f"with exit code {exit_code}"
        super().__init__(f"The child process that ran the attempt ended {how}, without an answer.")
        self.exit_code = exit_code


class ClaimLost(MillpondError):
    """The row is no longer this worker's: it was taken back, or deleted. What was to be written with it must not be."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"Job {job_id} is no longer held by this claim; roll back what belongs to it.")
        self.job_id = job_id


class StoreError(MillpondError):
    """The database cannot be used as it is. The message is one sentence that says why, and what to do."""


class DatabaseUnreachable(StoreError, ConnectionError):
    """No connection, for now: the callers' loops try again."""


class AnswerLost(DatabaseUnreachable):
    """The connection broke, or took too long, before the answer came: what was asked for may have been done, or not."""


class DatabaseUnsuitable(StoreError):
    """A server too old, or a database whose encoding is not UTF-8."""


class SchemaMismatch(StoreError):
    """The schema is not migrated, or not to a revision that this code knows."""
