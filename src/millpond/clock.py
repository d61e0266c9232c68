"""What time it is. The database's clock decides schedules and leases; in a process, only durations are measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Monotonic: TypeAlias = Callable[[], float]
"""Seconds on a clock that never steps; only differences mean anything."""

monotonic: Monotonic = time.monotonic
