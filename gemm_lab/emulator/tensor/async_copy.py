"""cp.async: copies from global to shared memory that count as done at their wait only.

Groups are counted by thread. The bytes are read when the copy is issued and written when its
group is waited for, so that a kernel that forgets the wait reads old data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemm_lab.emulator.runtime.access import Base
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.groups import AccessGroup, Site
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.tensor.mbarriers import Mbarriers

__all__ = ["AsyncCopies", "Copy"]


@dataclass(slots=True)
class Copy:
    """One cp.async in flight: `group` is None until committed, then a number a lane."""

    base: Base
    rel: int
    words: list[Array]
    mask: Mask | None
    group: Array | None = None


class AsyncCopies(Mbarriers):
    """cp.async with its groups."""

    def async_copy(
        self,
        target: Base,
        rel: int,
        source: Base,
        source_rel: int,
        count: int,
        valid: Array | None,
        m: Mask | None,
    ) -> None:
        """Issue a copy of `count` words; a lane's bytes from `valid` on are zero."""
        words: list[Array] = []
        if m is None or m.lanes:
            view = source.views.i32[source_rel * source.step :]
            for word in range(count):
                value: Array = view[word * source.step :].take(source.index, 0)
                if valid is not None:
                    left = np.clip(valid - 4 * word, 0, 4)
                    keep = np.where(left >= 4, -1, (1 << (8 * np.minimum(left, 3))) - 1)
                    value = value & keep.astype(np.int32)
                words.append(value)
        if not words:
            return
        copy = Copy(target, rel, words, m)
        self.copies.append(copy)
        if self.races is not None:
            self.races.async_issue(self, copy)
        if self.counters is not None:
            lanes = self.lanes if m is None else m.lanes
            site = target.group.accesses[0].site
            self.counters.bump(site.ins, "async_copy_bytes", lanes * 4 * count)

    def copy_source(self, a: Array, g: AccessGroup, valid: Array | None, m: Mask | None) -> Base:
        """Check the global side: lanes that copy no byte may hold any address."""
        if valid is not None:
            reads = valid > 0
            if not reads.all():
                array = reads if m is None else reads & m.array
                m = Mask(array, self.shape)
                if not m.lanes:
                    base = self._nowhere(g, m)
                    return Base(self.heap, base.index, 0, False, m, g, base.bytes)
        return self.gb(a, g, m)

    def commit_group(self, m: Mask | None) -> None:
        """cp.async.commit_group: what each lane issued so far becomes one group."""
        kept: list[Copy] = []
        for copy in self.copies:
            if copy.group is not None:
                kept.append(copy)
            elif m is None or copy.mask is m:
                copy.group = self.committed
                kept.append(copy)
            else:
                kept.extend(self._split(copy, m))
        self.copies = kept
        self.committed = self.committed + (1 if m is None else m.array.astype(np.int32))

    def _split(self, copy: Copy, m: Mask) -> list[Copy]:
        """The lanes of a copy that commit now, and those that don't."""
        mine = np.ones((1, 1, 1), dtype=bool) if copy.mask is None else copy.mask.array
        inside, outside = mine & m.array, mine & ~m.array
        out = []
        for lanes, group in ((inside, self.committed), (outside, None)):
            if lanes.any():
                mask = Mask(lanes, self.shape)
                out.append(Copy(copy.base, copy.rel, copy.words, mask, group))
        return out

    def wait_group(self, pending: int, m: Mask | None, site: Site) -> None:
        """cp.async.wait_group: all but a lane's latest `pending` groups are done."""
        limit = self.committed - pending
        kept: list[Copy] = []
        for copy in self.copies:
            if copy.group is None:
                kept.append(copy)
                continue
            ready = copy.group < limit
            if m is not None:
                ready = ready & m.array
            self._finish(copy, ready, kept)
        self.copies = kept

    def wait_all(self, m: Mask | None, site: Site) -> None:
        """cp.async.wait_all: every copy of these lanes, committed or not."""
        kept: list[Copy] = []
        ready = np.ones((1, 1, 1), dtype=bool) if m is None else m.array
        for copy in self.copies:
            self._finish(copy, ready, kept)
        self.copies = kept

    def _finish(self, copy: Copy, ready: Array, kept: list[Copy]) -> None:
        """Write the lanes that are ready; the others stay in flight."""
        if not ready.any():
            kept.append(copy)
            return
        whole = ready.all()
        mask = copy.mask
        if not whole:
            array = ready if mask is None else ready & mask.array
            if not array.any():
                kept.append(copy)
                return
            rest = ~ready if mask is None else mask.array & ~ready
            mask = Mask(array, self.shape)
            if rest.any():
                kept.append(
                    Copy(copy.base, copy.rel, copy.words, Mask(rest, self.shape), copy.group)
                )
        self._write(copy, mask)

    def _write(self, copy: Copy, mask: Mask | None) -> None:
        base = copy.base
        target = Base(base.views, base.index, base.step, base.wide, mask, base.group, base.bytes)
        if base.index.ndim == 2 and mask is not None and mask.array.shape[2] > 1:
            index = base.index[:, :, None] * self.B + self.block_row
            target = Base(self.smem_flat, index, self.B, True, mask, base.group, base.bytes)
        for word, value in enumerate(copy.words):
            self._put(target, (copy.rel + word) * target.step, "i32", value)
        if self.track:
            low = int(base.bytes.min())
            span = base.group.hi - base.group.lo
            self._track_shared(
                base.bytes, low, int(base.bytes.max()) + span, base.bytes - base.group.lo,
                base.group, mask,
            )  # fmt: skip
        if self.races is not None:
            self.races.async_done(self, copy, mask)

    def copies_done(self, m: Mask | None) -> None:
        """All copies of these lanes have landed: cp.async.mbarrier.arrive triggers then."""
        kept: list[Copy] = []
        ready = np.ones((1, 1, 1), dtype=bool) if m is None else m.array
        for copy in self.copies:
            self._finish(copy, ready, kept)
        self.copies = kept
