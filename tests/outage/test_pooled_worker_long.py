"""What is true of a worker is true of one behind a PgBouncer: all of its tests, run again."""

from __future__ import annotations

import pytest

from tests.outage.pooling import workers_are_pooled  # noqa: F401 - for every test here
from tests.worker.test_worker import *  # noqa: F403

pytestmark = pytest.mark.storm
