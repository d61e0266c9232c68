"""Workers die all the time, and no job is lost."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from millpond.testing.database import Database
from tests.proof.spawning import Spawner
from tests.proof.storm import Storm, Weather


@pytest.fixture(scope="module")
def spawner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spawner]:
    with Spawner(tmp_path_factory.mktemp("processes")) as spawner:
        yield spawner


SHORT = Weather(seed=secrets.randbelow(1_000_000), workers=3, jobs=1_500)
LONG = Weather(seed=secrets.randbelow(1_000_000), workers=8, jobs=20_000, seconds=0.1, lease=5.0)


@pytest.mark.parametrize("weather", [SHORT, pytest.param(LONG, marks=pytest.mark.storm)], ids=["short", "long"])
def test_no_job_is_lost_and_every_second_start_is_explained(
    weather: Weather, database: Database, spawner: Spawner
) -> None:
    account = Storm(database, spawner, weather).run()
    print(account)
    assert account.lost == 0, account
    assert account.unexplained == 0, account
    assert set(account.exits) <= {0, -15}, account  # -15: told to leave before it could hear
