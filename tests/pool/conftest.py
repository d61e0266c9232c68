"""What the pool's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .support import Told


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    """Who was told what. The test fails when anybody was told twice."""
    told = Told()
    yield told
    assert told.each_once(), told.times
