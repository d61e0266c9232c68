"""A forked child has the pool's memory but not its loop and threads: there it refuses, and tells of nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")

PROGRAM = """
    import asyncio, os, sys
    from millpond.errors import ForkedPool, SubmitError
    from millpond.outcome import Completed
    from millpond.settings import PoolSettings
    from millpond.tenancy.blocking import BlockingTenantPool
    from millpond.tenancy.pool import TenantPool
    from millpond.tenancy.task import Task

    async def nothing(context):
        pass

    def refused(pool):
        try:
            pool.submit(Task(tenant="a", run=nothing, complete=print))
        except ForkedPool as error:
            assert isinstance(error, SubmitError)
            return "must start a pool of its own" in str(error)
        return False

    def in_a_child(check):
        child = os.fork()
        if not child:
            os._exit(0 if check() else 9)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    {main}
"""


def run(main: str) -> str:
    """The output of a program of its own: pytest's threads and forks do not go together."""
    program = textwrap.dedent(PROGRAM).format(main=textwrap.dedent(main))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_forked_child_is_refused_and_the_parent_goes_on() -> None:
    output = run(
        """
async def main():
    results = []
    done = asyncio.Event()
    def complete(task, outcome):
        results.append(outcome)
        if len(results) == 3:
            done.set()
    async def forks(context):
        return in_a_child(lambda: refused(pool))
    def forks_in_a_thread(context):
        return in_a_child(lambda: refused(pool))
    async with TenantPool() as pool:
        for run in (forks, forks_in_a_thread, nothing):
            pool.submit(Task(tenant="a", run=run, complete=complete))
        await done.wait()
    print(sorted(map(str, results)))

asyncio.run(main())
"""
    )
    assert output == "['Completed(result=None)', 'Completed(result=True)', 'Completed(result=True)']\n"


def test_a_child_that_comes_back_into_a_pools_thread_tells_of_nothing_and_ends() -> None:
    """Code that forks in a thread and returns on both sides: only the parent may complete the task."""
    output = run(
        """
async def main():
    done = asyncio.Event()
    def complete(task, outcome):
        print("told", outcome.result, os.getpid() == parent, flush=True)
        done.set()
    async with TenantPool() as pool:
        pool.submit(Task(tenant="a", run=lambda context: os.fork(), complete=complete))
        await done.wait()

parent = os.getpid()
asyncio.run(main())
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    )
    first, second = output.splitlines()
    assert first.startswith("told ")
    assert first.endswith(" True")
    assert int(first.split()[1]) > 0
    assert second == "0"


def test_the_blocking_pool_refuses_in_a_child_too_and_the_child_may_start_its_own() -> None:
    output = run(
        """
def own():
    with BlockingTenantPool() as mine:
        return mine.call("a", divmod, 7, 2).result(10) == (3, 1)

with BlockingTenantPool() as pool:
    print(in_a_child(lambda: refused(pool)), in_a_child(own), pool.call("a", divmod, 7, 2).result(10))
"""
    )
    assert output == "True True (3, 1)\n"
