"""The process in which candidates run, so that one of them may break it.

A plain child with a pipe either way, not a `multiprocessing` one: it never imports the caller's
`__main__`, and it starts afresh where a fork would share the parent's CUDA context. It is told
what to measure and answers with notes of what it does, then with the outcome. When its stdin
closes, because the parent is gone, it leaves even from the middle of a kernel that hangs.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from gemm_lab.core.measurement import Measurement
from gemm_lab.errors import GemmLabError
from gemm_lab.lab.candidates import Recipe, Target
from gemm_lab.lab.measure import PoisonedError, RunSettings
from gemm_lab.lab.station import StationPlan

__all__ = ["Failed", "Finished", "Lost", "Note", "Ready", "Task", "WorkerProcess", "serve"]

_START = "import sys; sys.path[:] = {path!r}; from gemm_lab.lab.worker import serve; serve()"
_LEAVE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """Kernels on one problem, to be timed in the same rounds."""

    recipes: tuple[Recipe, ...]
    settings: RunSettings


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The worker's first word."""

    target: Target


@dataclass(frozen=True, kw_only=True)
class Note:
    """What it does now, and with which of the recipes (None: all together)."""

    what: str
    index: int | None


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A Measurement or an error for each recipe."""

    outcomes: tuple[Measurement | GemmLabError, ...]


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The group broke off; `index` is the kernel that did it, None when that is not known.

    `poisoned`: the worker can do no more.
    """

    error: GemmLabError
    index: int | None
    poisoned: bool


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Nothing came: the process ended by itself (its exit code) or was silent for too long."""

    exit_code: int | None


Message = Ready | Note | Finished | Failed | Lost


class WorkerProcess:
    """One child; `receive` gives its messages in turn."""

    def __init__(self, plan: StationPlan) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is the parent's to answer.
            start_new_session=True,
        )
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        assert self._child.stdout is not None
        self._reader = threading.Thread(
            target=_read, args=(self._child.stdout, self._messages), daemon=True
        )
        self._reader.start()
        self._send(plan)

    def send(self, task: Task) -> None:
        """Ask for a measurement. A dead worker is noticed by `receive`."""
        self._send(task)

    def receive(self, timeout_s: float) -> Message:
        """The next message; Lost when the worker ended or said nothing for so long."""
        try:
            found = self._messages.get(timeout=timeout_s)
        except queue.Empty:
            return Lost(exit_code=None)
        if found is None:
            return Lost(exit_code=self._child.wait())
        return found

    def close(self) -> None:
        """Let it leave; kill it when it does not."""
        with contextlib.suppress(OSError):
            if self._child.stdin is not None:
                self._child.stdin.close()
        try:
            self._child.wait(timeout=_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._end()

    def kill(self) -> None:
        """End it now."""
        self._child.kill()
        self._child.wait()
        self._end()

    def _end(self) -> None:
        self._reader.join(timeout=_LEAVE_S)
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _send(self, message: object) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            pickle.dump(message, self._child.stdin)
            self._child.stdin.flush()


def _read(stream: IO[bytes], messages: queue.SimpleQueue[Message | None]) -> None:
    try:
        while True:
            messages.put(pickle.load(stream))
    except Exception:  # the pipe ended, in the middle of a message or not
        messages.put(None)


def serve() -> None:
    """The child's whole life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a kernel or a library prints may not come between the answers
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()

    def answer(message: Message) -> None:
        pickle.dump(message, out)
        out.flush()

    plan: StationPlan = tasks.get()
    try:
        station = plan.make()
    except GemmLabError as error:
        answer(Failed(error=error, index=None, poisoned=True))
        return
    answer(Ready(target=station.target))
    while True:
        task: Task = tasks.get()
        try:
            outcomes = station.measure(
                task.recipes,
                task.settings,
                lambda what, index: answer(Note(what=what, index=index)),
            )
        except PoisonedError as error:
            answer(Failed(error=_plain(error), index=error.index, poisoned=True))
            return
        except Exception as error:
            # Whatever it was, the context may be broken: a fresh process is sure.
            answer(Failed(error=_plain(error), index=None, poisoned=True))
            return
        answer(Finished(outcomes=_picklable(outcomes)))


def _listen(stream: IO[bytes], tasks: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            tasks.put(pickle.load(stream))
    except Exception:
        # The parent is gone. No clean-up: a hanging kernel would hold it up for ever.
        os._exit(0)


def _picklable(
    outcomes: Sequence[Measurement | GemmLabError],
) -> tuple[Measurement | GemmLabError, ...]:
    return tuple(_plain(o) if isinstance(o, GemmLabError) else o for o in outcomes)


def _plain(error: BaseException) -> GemmLabError:
    """The error as one that pickles: exceptions with keyword arguments of their own do not."""
    if isinstance(error, GemmLabError):
        plain = GemmLabError(error.message, hint=error.hint)
    else:
        plain = GemmLabError(f"{type(error).__name__}: {error}")
    return plain
