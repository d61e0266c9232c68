"""Workers die all the time, and no job is lost."""

from __future__ import annotations

import os
import secrets
from typing import Final

import pytest

from millpond.testing.database import Database
from tests.proof.spawning import Spawner
from tests.proof.storm import Storm, Weather

SEED: Final = int(os.environ.get("MILLPOND_STORM_SEED") or secrets.randbelow(1_000_000))
"""Printed with the figures; given again, the same blows fall, at moments that are as like as the machine allows."""

SHORT: Final = Weather(seed=SEED, workers=3, jobs=1_200)
LONG: Final = Weather(seed=SEED, workers=8, jobs=20_000, seconds=0.1, lease=5.0)


@pytest.mark.parametrize("weather", [SHORT, pytest.param(LONG, marks=pytest.mark.storm)], ids=["short", "long"])
def test_no_job_is_lost_and_every_second_start_is_explained(
    weather: Weather, database: Database, spawner: Spawner, figures: list[str]
) -> None:
    account = Storm(database, spawner, weather).run()
    if weather is LONG:
        figures.append(str(account))
    assert account.lost == 0, account
    assert account.unexplained == 0, account
    assert account.rude == []
