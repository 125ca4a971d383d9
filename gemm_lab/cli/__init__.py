"""The command line; every command loads its own module when it is called."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> None:
    """Entry point of `gemm-lab`. Ctrl-C ends it quietly while the program itself is loaded."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:  # else the caller wants it ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from gemm_lab.cli.app import program

    run = program()
    try:
        if raises:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
