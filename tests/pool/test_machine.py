"""The whole pool against a plain model: any order of submitting, ending, cancelling, changing limits and stopping."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millpond.errors import PoolQueueFull, TenantQueueFull, UnknownTenant
from millpond.outcome import Cancelled, Completed, Failed, Outcome, Released
from millpond.settings import Attempts, PoolSettings, RetryPolicy
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task, TaskContext
from millpond.tenancy.tenants import Tenant

TENANTS = ("a", "b", "c")
UNTIL_ALL_IS_QUIET = 12
"""Turns of the loop: enough for a chain of call, start, end and the next start, for every slot."""


@dataclass
class Job:
    """One task, as the test sees it."""

    tenant: str
    gate: asyncio.Future[str] | None = None
    """What the running attempt waits for; None while none runs."""
    starts: int = 0
    told: list[Outcome] = field(default_factory=list)
    resting: bool = False
    cancelled: bool = False


class Limits:
    """A provider whose limits the test sets."""

    def __init__(self) -> None:
        self.limits = dict.fromkeys(TENANTS, 2)

    async def active(self) -> list[Tenant]:
        return [Tenant(name, limit, weight=limit) for name, limit in self.limits.items()]


class PoolAgainstAModel(RuleBasedStateMachine):
    """One pool, its tasks held at gates that the rules open."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.jobs: dict[int, Job] = {}
        self.provider = Limits()
        self.lowered = False

    @initialize(worker_count=st.integers(1, 4), attempts=st.integers(1, 3))
    def start(self, worker_count: int, attempts: int) -> None:
        policy = RetryPolicy(attempts=Attempts(count=attempts, min_delay=60, max_delay=60))
        self.attempts = attempts
        self.settings = PoolSettings(
            worker_count=worker_count,
            task_queue_size=12,
            tenant_queue_size=5,
            tenant_refresh_interval=3_600,
            graceful_timeout=0,
            retry_policy=policy,
            blocked_after=None,
        )
        self.pool = TenantPool(self.settings, tenants=self.provider, uniform=lambda _, high: high)
        self.loop.run_until_complete(self.pool.start())

    def quiet(self) -> None:
        """Let everything happen that can."""

        async def turns() -> None:
            for _ in range(UNTIL_ALL_IS_QUIET):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    # ── what is so ──

    def of(self, tenant: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.tenant == tenant and not job.told]

    def running(self, tenant: str | None = None) -> list[Job]:
        jobs = self.jobs.values() if tenant is None else self.of(tenant)
        return [job for job in jobs if job.gate is not None]

    def queued(self, tenant: str) -> list[Job]:
        return [job for job in self.of(tenant) if job.gate is None and not job.resting]

    # ── what may happen ──

    @rule(tenant=st.sampled_from((*TENANTS, "unknown")))
    def submit(self, tenant: str) -> None:
        number = len(self.jobs)
        held = {name: len(self.of(name)) for name in (*TENANTS, "unknown")}
        room = self.pool.room()
        job = Job(tenant)
        try:
            self.pool.submit(Task(tenant=tenant, run=self._run, complete=self._complete, id=number))
        except UnknownTenant:
            assert tenant not in self.provider.limits
        except TenantQueueFull:
            assert held[tenant] >= self.provider.limits[tenant] + self.settings.tenant_queue_size
            assert room.tenants[tenant] == 0
        except PoolQueueFull:
            assert room.slots == 0
            slots = min(sum(self.provider.limits.values()), self.settings.worker_count)
            assert sum(held.values()) >= slots + self.settings.task_queue_size
        else:
            assert room.slots > 0
            assert room.tenants.get(tenant, room.default) > 0
            self.jobs[number] = job

    async def _run(self, context: TaskContext) -> str:
        job = self.jobs[int(str(context.task.id))]
        assert not job.told, "run after it was told of"
        assert job.gate is None, "run twice at once"
        tenant = job.tenant
        limit = self.provider.limits.get(tenant)
        if limit is not None:
            assert len(self.running(tenant)) < limit, "above its limit"
        assert len(self.running()) < self.settings.worker_count
        job.starts += 1
        job.resting = False
        job.gate = self.loop.create_future()
        try:
            how = await job.gate
        finally:
            job.gate = None
        if how == "fail":
            job.resting = context.attempt < self.attempts
            raise ConnectionError
        return how

    def _complete(self, task: Task, outcome: Outcome) -> None:
        self.jobs[int(str(task.id))].told.append(outcome)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), how=st.sampled_from(["end", "fail"]), at_once=st.booleans())
    def let_through(self, data: st.DataObject, how: str, at_once: bool) -> None:
        job = data.draw(st.sampled_from(self.running()))
        assert job.gate is not None
        if not job.gate.done():
            job.gate.set_result(how)
        if not at_once:
            self.quiet()

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), at_once=st.booleans())
    def cancel(self, data: st.DataObject, at_once: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.jobs)))
        job = self.jobs[number]
        was_told, was_running = bool(job.told), job.gate is not None
        assert self.pool.cancel(number, "by rule") == (not was_told)
        if not was_told and not was_running:
            assert job.told == [Cancelled("by rule")]
        job.cancelled = True
        if not at_once:
            self.quiet()

    @rule(tenant=st.sampled_from(TENANTS), limit=st.integers(1, 4))
    def change_a_limit(self, tenant: str, limit: int) -> None:
        self.provider.limits[tenant] = limit
        self._refresh()

    @precondition(lambda self: "c" in self.provider.limits)
    @rule()
    def remove_a_tenant(self) -> None:
        del self.provider.limits["c"]
        self._refresh()

    def _refresh(self) -> None:
        self.loop.run_until_complete(self.pool._directory.refresh())
        self.pool._take_over_terms()

    @rule()
    def end_all_rests(self) -> None:
        """As the timer would, an hour later."""
        assert self.pool._custody is not None
        deadlines: Any = self.pool._custody._deadlines
        for attempt in list(deadlines._moments):
            deadlines.drop(attempt)
            self.jobs[attempt.name].resting = False
            self.pool._custody._due(attempt)

    # ── what must hold ──

    @invariant()
    def nothing_is_told_twice_or_wrongly(self) -> None:
        for job in self.jobs.values():
            assert len(job.told) <= 1
            match job.told:
                case [Completed("end")] | [Failed(ConnectionError())]:
                    assert job.starts
                case [Cancelled("by rule")]:
                    assert job.cancelled
                case [other]:
                    raise AssertionError(other)

    @invariant()
    def no_slot_is_idle_while_somebody_may_run(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.quiet()
        assert self.pool.running == len(self.running())
        assert self.pool.queued == sum(
            len(self.queued(name)) + sum(job.resting for job in self.of(name)) for name in TENANTS
        )
        if len(self.running()) < self.settings.worker_count:
            for name in TENANTS:
                limit = self.provider.limits.get(name, 1)
                assert not self.queued(name) or len(self.running(name)) >= limit, "held back"

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            self.loop.run_until_complete(self.pool.stop())
            for job in self.jobs.values():
                assert len(job.told) == 1, "never told" if not job.told else "told twice"
                if isinstance(job.told[0], Released):
                    assert job.told[0].started == bool(job.starts)
            assert Counter(type(job.told[0]) for job in self.jobs.values()).total() == len(self.jobs)
            assert not asyncio.all_tasks(self.loop)
        self.loop.close()


TestPoolAgainstAModel = PoolAgainstAModel.TestCase
TestPoolAgainstAModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
