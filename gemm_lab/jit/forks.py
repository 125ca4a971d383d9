"""Locks that a forked child finds free."""

from __future__ import annotations

import os
import threading

__all__ = ["fork_safe_lock"]


def fork_safe_lock() -> threading.Lock:
    """A lock that a fork waits for, so that no child inherits it (or what it guards) half-way.

    Without that a child forked while another thread compiles would wait for ever.
    """
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
