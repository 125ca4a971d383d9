"""Compiler processes. NVRTC lets threads in, but runs ptxas under one lock a process.

On 2 cores four kernels take 2.0 s in one thread or two, 1.2 s in two processes. A worker is a
plain child that reads kernels from stdin and answers on stdout: unlike a spawned
multiprocessing child it never imports the caller's `__main__`. What it compiles is in the cache.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

from gemm_lab.core.kernel import RenderedKernel
from gemm_lab.errors import GemmLabError

__all__ = ["CompilerProcess", "serve"]

_START = "import sys; sys.path[:] = {path!r}; from gemm_lab.jit.worker import serve; serve()"


class CompilerProcess:
    """One child. Not for several threads at once; OSError or EOFError when it is gone."""

    def __init__(self, cache_directory: Path) -> None:
        self._cache_directory = cache_directory
        self._child = subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def compile(self, rendered: RenderedKernel) -> int:
        """Compile into the cache; how many compilations that took. Raises the child's error."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        pickle.dump((rendered, self._cache_directory), self._child.stdin)
        self._child.stdin.flush()
        answer = pickle.load(self._child.stdout)
        if isinstance(answer, GemmLabError):
            raise answer
        return int(answer)

    def close(self) -> None:
        """End the child: it leaves by itself when nothing more can come."""
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def serve() -> None:
    """The child's whole life."""
    from gemm_lab.jit.cache import Cache
    from gemm_lab.jit.compile import compile_kernel
    from gemm_lab.jit.compiler import compile_count

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C and closes our stdin
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints may come between the answers
    while True:
        try:
            rendered, directory = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        before = compile_count()
        answer: object
        try:
            compile_kernel(rendered, cache=Cache(directory))
            answer = compile_count() - before
        except GemmLabError as error:
            answer = error
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except BrokenPipeError:
            os._exit(0)
