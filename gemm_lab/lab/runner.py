"""Runs groups of candidates, here or in a worker, and blames a failure on the one that did it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from gemm_lab.core.measurement import Measurement
from gemm_lab.errors import GemmLabError, LaunchError
from gemm_lab.lab.candidates import Candidate, Target
from gemm_lab.lab.measure import PoisonedError, RunSettings
from gemm_lab.lab.station import Station, StationPlan
from gemm_lab.lab.worker import Failed, Finished, Lost, Note, Ready, Task, WorkerProcess

__all__ = ["IsolatedRunner", "LocalRunner", "Outcome", "Runner"]

Outcome = Measurement | GemmLabError
Listener = Callable[[str], None]
_START_S = 300.0  # loading CuPy and starting CUDA on a slow disk


class Runner(Protocol):
    """Where groups are measured."""

    @property
    def target(self) -> Target: ...

    def run(
        self, group: Sequence[Candidate], settings: RunSettings, listener: Listener
    ) -> list[Outcome]: ...

    def __enter__(self) -> Runner: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...


class LocalRunner:
    """In this process: for the emulator, whose faults break nothing."""

    def __init__(self, station: Station) -> None:
        self._station = station

    @property
    def target(self) -> Target:
        """What it runs on."""
        return self._station.target

    def run(
        self, group: Sequence[Candidate], settings: RunSettings, listener: Listener
    ) -> list[Outcome]:
        """An outcome for each; LaunchError when the process can do no more."""
        recipes = [c.recipe for c in group]
        try:
            return self._station.measure(recipes, settings, lambda what, _: listener(what))
        except PoisonedError as error:
            name = group[error.index].request.variant.name
            raise LaunchError(
                f"{name}: {error.message}", hint="isolate=True runs candidates where they may die"
            ) from error

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class IsolatedRunner:
    """In a worker that is replaced when a candidate breaks it or hangs.

    Args:
        plan: how the worker makes its station.
        timeout_s: a worker that says nothing for so long is killed.
    """

    def __init__(self, plan: StationPlan, *, timeout_s: float = 120.0) -> None:
        self._plan = plan
        self._timeout_s = timeout_s
        self._worker: WorkerProcess | None = None
        self._target: Target | None = None
        self.restarts = -1

    @property
    def target(self) -> Target:
        """What the worker runs on; starts one. GemmLabError when that fails."""
        self._alive()
        assert self._target is not None
        return self._target

    def run(
        self, group: Sequence[Candidate], settings: RunSettings, listener: Listener
    ) -> list[Outcome]:
        """An outcome for each. A group that breaks is tried again without the one that did it."""
        found: dict[int, Outcome] = {}
        pending = list(range(len(group)))
        alone = False
        while pending:
            batch = pending[:1] if alone else pending
            reply, last = self._attempt([group[i] for i in batch], settings, listener)
            if isinstance(reply, Finished):
                found.update(zip(batch, reply.outcomes, strict=True))
            elif len(batch) > 1 and self._blamed(reply, last) is None:
                alone = True  # somebody in it: who, shows when each runs by itself
                continue
            else:
                index = batch[self._blamed(reply, last) or 0]
                found[index] = self._reason(reply, last)
                batch = [index]
            pending = [i for i in pending if i not in batch]
        return [found[i] for i in range(len(group))]

    def __enter__(self) -> IsolatedRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._worker is not None:
            if error is None:
                self._worker.close()
            else:
                self._worker.kill()
            self._worker = None

    def _alive(self) -> WorkerProcess:
        if self._worker is not None:
            return self._worker
        worker = WorkerProcess(self._plan)
        self.restarts += 1
        try:
            first = worker.receive(_START_S)
        except BaseException:
            worker.kill()
            raise
        if isinstance(first, Ready):
            self._worker, self._target = worker, first.target
            return worker
        worker.kill()
        if isinstance(first, Failed):
            raise first.error
        raise GemmLabError(
            "the worker process did not start", hint="what it said stands above, on stderr"
        )

    def _attempt(
        self, group: Sequence[Candidate], settings: RunSettings, listener: Listener
    ) -> tuple[Finished | Failed | Lost, Note | None]:
        worker = self._alive()
        worker.send(Task(recipes=tuple(c.recipe for c in group), settings=settings))
        last: Note | None = None
        while True:
            reply = worker.receive(self._timeout_s)
            if isinstance(reply, Note):
                last = reply
                listener(reply.what)
                continue
            if isinstance(reply, Lost) or (isinstance(reply, Failed) and reply.poisoned):
                worker.kill()
                self._worker = None
            assert isinstance(reply, Finished | Failed | Lost)
            return reply, last

    def _blamed(self, reply: Failed | Lost, last: Note | None) -> int | None:
        if isinstance(reply, Failed) and reply.index is not None:
            return reply.index
        return None if last is None else last.index

    def _reason(self, reply: Failed | Lost, last: Note | None) -> GemmLabError:
        if isinstance(reply, Failed):
            return reply.error
        doing = "starting" if last is None else last.what
        if reply.exit_code is None:
            return LaunchError(
                f"hung while {doing}: nothing came for {self._timeout_s:g} s and it was killed",
                hint="a longer timeout, if the problem is really so large",
            )
        return LaunchError(f"the worker died while {doing} (exit code {reply.exit_code})")
