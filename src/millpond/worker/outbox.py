"""Outcomes on their way to the database. They outlive the registration under which they came about.

A lease that ran out, because the database was gone for longer, ends what still runs. What had ended by then is written
when the database is back: the claim token guards each row, so it is too late only for a job that was taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millpond.events import JobCompleted, JobEvent
from millpond.outcome import Settlement


@dataclass(slots=True)
class Outbox:
    """What one worker has to write."""

    pending: list[Settlement] = field(default_factory=list)
    """In the order in which they came."""
    doubtful: set[int] = field(default_factory=set)
    """Jobs whose rows may have moved already: completed by their executors, or written without an answer."""
    completed_in_place: dict[int, JobCompleted] = field(default_factory=dict)
    """Jobs that their executors completed themselves: if such a row does not move, that is why."""
    refused: list[Settlement] = field(default_factory=list)
    """What the database has refused for a reason of its own; tried again later."""
    told: dict[int, JobEvent] = field(default_factory=dict)
    """What to tell of a job once its outcome is written, when anybody wants to know."""
