"""Kill storms: workers' processes are killed, stopped and told to leave at random, and every start is accounted for."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any, Final

import psycopg

from millpond import Client
from millpond.testing.database import Database
from tests.proof.oracle import SESSION
from tests.proof.spawning import Process, Spawner

KINDS: Final = ("async", "async", "sync", "cpu", "effect", "fails")
"""Executors of the jobs, in turn."""

FINAL: Final = "('completed', 'cancelled', 'discarded')"

FAILING_ATTEMPTS: Final = 3
MANY_ATTEMPTS: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Weather:
    """What blows."""

    seed: int
    workers: int
    jobs: int
    tenants: int = 50
    seconds: float = 0.05
    """How long a job takes on average."""
    slots: int = 8
    """Jobs that each worker runs at once."""
    lease: float = 3.0
    strikes: tuple[tuple[signal.Signals, int], ...] = ((SIGKILL, 4), (SIGSTOP, 3), (SIGTERM, 3))
    """Signals, each with its weight."""
    pauses: tuple[float, float] = (0.05, 0.5)
    """Seconds between two strikes."""
    patience: float = 600.0
    """Seconds in which all jobs must be done."""


@dataclass
class Account:
    """What the ledger and the log say in the end."""

    weather: Weather
    seconds: float = 0.0
    strikes: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    """Jobs that are not in the final state in which they should be."""
    duplicates: int = 0
    """Starts of a job after it had started before, and had not failed by itself."""
    unexplained: int = 0
    """Duplicates of which no signal to the former worker is the cause."""
    rude: list[str] = field(default_factory=list)
    """Workers that were told to leave once, and nothing else, and did not leave in peace: what they said."""

    def __str__(self) -> str:
        struck = ", ".join(f"{count} {name}" for name, count in sorted(self.strikes.items()))
        return (
            f"storm: {self.weather.workers} workers, {self.weather.jobs:,} jobs, {sum(self.strikes.values())} kills"
            f" ({struck}), {self.lost} lost, {self.duplicates} duplicates, {self.unexplained} unexplained;"
            f" {self.seconds:.0f} s, seed {self.weather.seed}"
        )


class Storm:
    """One storm over one database."""

    def __init__(self, database: Database, spawner: Spawner, weather: Weather) -> None:
        self._database = database
        self._spawner = spawner
        self._weather = weather
        self._chance = random.Random(weather.seed)
        self._account = Account(weather)
        self._up: list[Process] = []
        self._struck: dict[Process, list[signal.Signals]] = {}
        self._frozen: dict[Process, float] = {}

    def run(self) -> Account:
        """Let it blow until all jobs are done; then let the workers leave, and take stock."""
        started = time.monotonic()
        with self._database.connect(autocommit=True, application_name=SESSION) as connection:
            self._enqueue(connection)
            for _ in self._gusts():
                if _one(connection, f"SELECT count(*) FROM millpond.jobs WHERE state NOT IN {FINAL}") == 0:
                    break
                assert time.monotonic() < started + self._weather.patience, self._account
                self._strike(connection)
            self._calm()
            self._account.seconds = time.monotonic() - started
            self._take_stock(connection)
        return self._account

    # ── blowing ──

    def _enqueue(self, connection: psycopg.Connection[Any]) -> None:
        client, chance = Client(), self._chance
        client.enqueue_many(
            connection,
            [
                client.job(
                    {"seconds": chance.uniform(0, 2 * self._weather.seconds)},
                    tenant=f"tenant {number % self._weather.tenants}",
                    executor=(kind := KINDS[number // self._weather.tenants % len(KINDS)]),
                    max_attempts=FAILING_ATTEMPTS if kind == "fails" else MANY_ATTEMPTS,
                )
                for number in range(self._weather.jobs)
            ],
        )

    def _gusts(self) -> Iterator[None]:
        """Between two strikes: who is dead is replaced, who was stopped goes on when its time has come."""
        while True:
            strike_at = time.monotonic() + self._chance.uniform(*self._weather.pauses)
            while (left := strike_at - time.monotonic()) > 0:
                self._up = [process for process in self._up if process.poll() is None]
                while len(self._up) < self._weather.workers:
                    self._up.append(self._new_worker())
                for process, until in list(self._frozen.items()):
                    if time.monotonic() > until:
                        del self._frozen[process]
                        process.send(SIGCONT)
                self._spawner.listen(min(left, 0.02))
            yield

    def _new_worker(self) -> Process:
        weather = self._weather
        options = {
            "--workers": weather.slots,
            "--stale-timeout": weather.lease,
            "--beat-interval": weather.lease / 15,
            "--poll-interval": 0.5,
            "--log-level": "warning",
        }
        words = [str(word) for option in options.items() for word in option]
        return self._spawner.start("tests.proof.spawning:work", *words, env={"MILLPOND_DSN": self._database.dsn})

    def _strike(self, connection: psycopg.Connection[Any]) -> None:
        process = self._chance.choice(self._up)
        numbers, weights = zip(*self._weather.strikes, strict=True)
        (number,) = self._chance.choices(numbers, weights)
        connection.execute("INSERT INTO proof.strikes (pid, signal) VALUES (%s, %s)", (process.pid, number.name))
        if not process.send(number):
            return
        self._account.strikes[number.name] += 1
        self._struck.setdefault(process, []).append(number)
        if number is SIGSTOP:
            self._frozen[process] = time.monotonic() + self._chance.uniform(0.1, 2.5 * self._weather.lease)

    def _calm(self) -> None:
        for process in self._frozen:
            process.send(SIGCONT)
        for process in self._up:
            process.send(SIGTERM)
            self._struck.setdefault(process, []).append(SIGTERM)
        for process in self._struck:
            process.wait()

    # ── taking stock ──

    def _take_stock(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("ANALYZE proof.moves, proof.starts, proof.strikes, proof.effects, millpond.jobs")
        self._account.lost = _one(connection, LOST, failing=FAILING_ATTEMPTS)
        row = connection.execute(DUPLICATES).fetchone()
        assert row is not None
        self._account.duplicates, self._account.unexplained = row
        registered = {int(pid) for (pid,) in connection.execute("SELECT split_part(name, ':', 2) FROM proof.workers")}
        self._account.rude = [
            f"{process.pid} left with {process.wait()}: {process.said()}"
            for process, numbers in self._struck.items()
            # One that was told before it could hear has died of it, and had not begun.
            if numbers == [SIGTERM] and process.wait() != 0 and process.pid in registered
        ]


LOST: Final = f"""
SELECT count(*) FROM millpond.jobs AS j
WHERE NOT CASE j.executor
    WHEN 'fails' THEN j.state = 'discarded' AND j.attempt = %(failing)s
    WHEN 'effect' THEN j.state = 'completed' AND 1 = (SELECT count(*) FROM proof.effects AS e WHERE e.job_id = j.id)
    ELSE j.state = 'completed' AND EXISTS (
        SELECT FROM proof.moves AS m
        JOIN proof.starts AS s ON s.job_id = m.job_id AND s.claim_token = m.old_token
        WHERE m.job_id = j.id AND m.new_state = 'completed' AND s.finished_at IS NOT NULL
    )
END OR j.state NOT IN {FINAL}
"""
"""What is not as it should be. What is completed was finished under the very claim that completed it."""

DUPLICATES: Final = """
WITH ends AS (
    SELECT s.job_id, s.place, m.new_state, m.at, w.name
    FROM proof.starts AS s
    JOIN proof.moves AS m ON m.job_id = s.job_id AND m.old_token = s.claim_token AND m.old_state = 'running'
    JOIN proof.workers AS w ON w.id = m.old_worker
), again AS (
    SELECT e.*
    FROM ends AS e
    WHERE e.new_state IN ('available', 'scheduled')
        AND EXISTS (SELECT FROM proof.starts AS s WHERE s.job_id = e.job_id AND s.place > e.place)
)
SELECT count(*), count(*) FILTER (WHERE NOT EXISTS (
    SELECT FROM proof.strikes AS k WHERE again.name LIKE '%:' || k.pid AND k.at < again.at
))
FROM again
"""
"""Starts that came to nothing, with another after them: how their claims ended, and what had struck their workers."""


def _one(connection: psycopg.Connection[Any], query: str, **params: Any) -> int:
    row = connection.execute(query, params).fetchone()
    assert row is not None
    return int(row[0])
