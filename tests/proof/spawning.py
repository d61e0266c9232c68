"""Real processes in milliseconds: forked from one that has everything imported, and runs nothing else.

A worker's process costs a second of imports; a storm kills hundreds of them. The warm process reads requests from a
pipe, one JSON object a line, forks for each, and tells on another pipe who has begun and how each has ended. When its
owner dies, the pipe ends, and it takes its children along.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]

WARM: Final = ("millpond.cli.app", "tests.proof.app")
"""What is imported once for all."""

_DEADLINE: Final = 60.0


class Process:
    """One process, forked from the warm one."""

    def __init__(self, spawner: Spawner, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self.returncode: int | None = None
        """As subprocess says it: the exit status, or minus the number of the signal."""
        self._spawner = spawner

    def poll(self) -> int | None:
        """How it has ended; None while it runs."""
        self._spawner.listen(0.0)
        return self.returncode

    def wait(self, timeout: float = _DEADLINE) -> int:
        """Wait until it has ended. Raises TimeoutError, with the end of its log."""
        deadline = time.monotonic() + timeout
        while self.returncode is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"Process {self.pid} has not ended. {self.said()}")
            self._spawner.listen(left)
        return self.returncode

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; whether it was still there."""
        if self.poll() is not None:
            return False
        os.kill(self.pid, number)  # not reaped before it is told of: the number is still its own
        return True

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text("utf-8", errors="replace")[-2_000:] if self.log.exists() else ""


class Spawner:
    """The warm process, from outside. Its children have ended when the `with` has."""

    def __init__(self, folder: Path) -> None:
        """`folder`: for what the processes write to their standard error."""
        self._folder = folder
        self._running: dict[int, Process] = {}
        self._asked: deque[Path] = deque()
        self._begun: deque[Process] = deque()
        self._number = 0

    def __enter__(self) -> Spawner:
        self._warm = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.spawning"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._warm.stdout is not None
        self._news = self._warm.stdout
        os.set_blocking(self._news.fileno(), False)
        self._heard = b""
        return self

    def __exit__(self, *error: object) -> None:
        assert self._warm.stdin is not None
        self._warm.stdin.close()
        self._warm.wait(_DEADLINE)
        self._news.close()

    def start(self, target: str, *arguments: Any, env: Mapping[str, str]) -> Process:
        """Fork a process that calls `module:function` with these arguments."""
        self._number += 1
        log = self._folder / f"{self._number}.log"
        request = {"target": target, "arguments": arguments, "env": dict(env), "log": str(log)}
        assert self._warm.stdin is not None
        self._warm.stdin.write(json.dumps(request).encode() + b"\n")
        self._asked.append(log)
        while not self._begun:
            self.listen(_DEADLINE)
        return self._begun.popleft()

    def listen(self, timeout: float) -> None:
        """Take the news, and wait for some at most so long."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._news, selectors.EVENT_READ)
            if not selector.select(timeout):
                return
        heard = self._news.read(65_536)
        if not heard:
            raise EOFError("The warm process has ended.")
        *lines, self._heard = (self._heard + heard).split(b"\n")
        for line in lines:
            pid, status = json.loads(line)
            if status is None:
                self._running[pid] = Process(self, pid, self._asked.popleft())
                self._begun.append(self._running[pid])
            else:
                self._running.pop(pid).returncode = status


# ── the warm process ──


def main() -> None:
    """Fork on request, until the requests end."""
    for name in WARM:
        importlib.import_module(name)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("uvloop")
    waker, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    alive: set[int] = set()
    try:
        for request in _requests(waker, alive):
            pid = os.fork()
            if pid == 0:
                _become(request, waker, woken)
            alive.add(pid)
            _tell(pid, None)
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)


def _requests(waker: int, alive: set[int]) -> Iterator[dict[str, Any]]:
    """What is asked for, as it comes; in between, the dead are told of."""
    asked = b""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(waker, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if waker in ready:
                os.read(waker, 4_096)
                _bury(alive)
            if 0 in ready:
                got = os.read(0, 65_536)
                if not got:
                    return
                *lines, asked = (asked + got).split(b"\n")
                yield from map(json.loads, lines)


def _bury(alive: set[int]) -> None:
    while alive:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        alive.discard(pid)
        _tell(pid, os.waitstatus_to_exitcode(status))


def _tell(pid: int, status: int | None) -> None:
    os.write(1, json.dumps([pid, status]).encode() + b"\n")


def _become(request: Mapping[str, Any], *pipes: int) -> None:
    """Be the process that was asked for, and never come back."""
    status = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.dup2(log, 2)
        for pipe in pipes:
            os.close(pipe)
        os.environ.update(request["env"])
        module, _, name = request["target"].partition(":")
        getattr(importlib.import_module(module), name)(*request["arguments"])
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


def work(*arguments: str) -> None:
    """`millpond worker` with these arguments."""
    from millpond.cli import main as millpond

    sys.argv = ["millpond", "worker", "tests.proof.app:registry", *arguments]
    millpond()


if __name__ == "__main__":
    main()
