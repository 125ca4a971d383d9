"""Counts what Nsight Compute counts: requests, sectors, wavefronts, bank conflicts, work."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemm_lab.emulator.findings import Counters, LineCounters
from gemm_lab.emulator.ptx.ir import Instr
from gemm_lab.emulator.runtime.access import Base
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.context import Context
from gemm_lab.emulator.runtime.groups import Access, AccessGroup
from gemm_lab.emulator.runtime.masks import Mask

__all__ = ["Counter", "wavefronts"]

SECTOR_BYTES = 32
BANKS = 32
FLOP = {"fma": 2, "mad": 2, "add": 1, "sub": 1, "mul": 1, "div": 1, "sqrt": 1, "rcp": 1, "rsqrt": 1}
FLOAT_KINDS = {"f32": 1, "f64": 1, "f16": 1, "bf16": 1, "f16x2": 2, "bf16x2": 2}
MEMO_LIMIT = 4096


def _distinct(values: Array) -> Array:
    """Number of distinct values along axis 1 of [warps, lanes, B]; -1 marks absent lanes."""
    ordered = np.sort(values, axis=1)
    changes = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)
    found: Array = changes + 1 - (ordered[:, 0] < 0)
    return found


def wavefronts(byte: Array, size_bytes: int, parts: int = 0) -> tuple[int, int]:
    """(wavefronts, least possible) of shared accesses; byte is [warps, 32, B], -1 where absent.

    Up to 4 bytes a lane the warp goes together; 8 bytes likewise, by pairs of banks; 16 bytes go
    by half-warps, the rows of ldmatrix by `parts` of eight lanes. Lanes with one address share.
    This reproduces ncu's conflicts on the ladder.
    """
    if size_bytes <= 4:
        unit, banks, split = 4, BANKS, 1
    elif size_bytes == 8:
        unit, banks, split = 8, BANKS // 2, 1
    else:
        unit, banks, split = 16, BANKS // 4, 2
    parts = parts or split
    warps, lanes, blocks = byte.shape
    segment = np.where(byte < 0, -1, byte // unit)
    segment = segment.reshape(warps * parts, lanes // parts, blocks)
    ordered = np.sort(segment, axis=1)
    first = np.ones_like(ordered, dtype=bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first &= ordered >= 0
    bank = ordered % banks
    hits = np.zeros((*segment.shape[::2], banks), dtype=np.int64)
    rows, _, columns = np.nonzero(first)
    np.add.at(hits, (rows, columns, bank[first]), 1)
    worst = hits.max(axis=2)
    ideal = -(-first.sum(axis=1) // banks)
    return int(worst.sum()), int(ideal.sum())


class Counter:
    """Collects over the watched batches of a launch."""

    def __init__(self) -> None:
        self.sites: dict[int, LineCounters] = {}
        self.instrs: dict[int, Instr] = {}
        self.block_warps: dict[int, int] = {}
        self.block_lanes: dict[int, int] = {}
        self.memo: dict[Any, list[tuple[Access, str, int, int, int]]] = {}
        self.merged: dict[int, list[tuple[Access, int]]] = {}
        self.blocks = 0

    # ---- accesses ----
    def access(self, x: Context, base: Base, shared: bool) -> None:
        """A group of accesses of all active lanes."""
        group = base.group
        d = base.bytes
        key_bytes = d
        if not shared and d.size:
            key_bytes = d - (int(d.reshape(-1)[0]) & ~(SECTOR_BYTES - 1))
        mask_key = None if base.mask is None else base.mask.array.tobytes()
        key = (id(group), x.B, d.shape, key_bytes.tobytes(), mask_key)
        found = self.memo.get(key)
        if found is None:
            lanes = self._lanes(x, base)
            found = self._shared(lanes, group) if shared else self._global(lanes, group)
            if len(self.memo) < MEMO_LIMIT:
                self.memo[key] = found
        for access, kind, requests, units, extra in found:
            self._count(access, kind, requests, units, extra)

    def copy(self, x: Context, base: Base) -> None:
        """The global side of a cp.async: lanes that copy no byte ask nothing."""
        for access, _, requests, sectors, _ in self._global(self._lanes(x, base), base.group):
            self.bump(access.site.ins, "async_copy_requests", requests)
            self.bump(access.site.ins, "async_copy_sectors", sectors)

    def _lanes(self, x: Context, base: Base) -> Array:
        """Byte addresses of the lowest access as [warps, 32, B], -1 where a lane is idle."""
        full = np.broadcast_to(base.bytes, x.shape).reshape(x.threads, x.B)
        if base.mask is not None:
            full = np.where(base.mask.full().reshape(full.shape), full, -1)
        if x.threads % 32:
            filler = np.full((-x.threads % 32, x.B), -1, dtype=full.dtype)
            full = np.concatenate([full, filler])
        return full.reshape(x.warps, 32, x.B)

    def _global(self, lanes: Array, group: AccessGroup) -> list[tuple[Access, str, int, int, int]]:
        active = lanes >= 0
        requests = int(active.any(axis=1).sum())
        count = int(active.sum())
        sectors: dict[int, int] = {}
        out = []
        for access in group.accesses:
            shift = (access.offset - group.lo) % SECTOR_BYTES
            if shift not in sectors:
                at = np.where(active, (lanes + shift) // SECTOR_BYTES, -1)
                sectors[shift] = int(np.maximum(_distinct(at), 0).sum())
            out.append(
                (access, f"g{group.kind}", requests, sectors[shift], count * access.size_bytes)
            )
        return out

    def _shared(self, lanes: Array, group: AccessGroup) -> list[tuple[Access, str, int, int, int]]:
        active = lanes >= 0
        requests = int(active.any(axis=1).sum())
        count = int(active.sum())
        matrix = "matrix" in group.accesses[0].site.ins.name
        conflicts: dict[tuple[int, int], tuple[int, int]] = {}
        out = []
        for access, size in self._merge(lanes, active, group):
            shift = (access.offset - group.lo) % 128
            key = (shift, size)
            if key not in conflicts:
                conflicts[key] = wavefronts(
                    np.where(active, lanes + shift, -1), size, 4 if matrix else 0
                )
            waves, ideal = conflicts[key]
            out.append((access, f"s{group.kind}", requests, waves, waves - ideal))
            out.append((access, f"b{group.kind}", 0, 0, count * size))
        return out

    def _merge(self, lanes: Array, active: Array, group: AccessGroup) -> list[tuple[Access, int]]:
        """Accesses as ptxas issues them: scalar loads of neighbouring words become one."""
        accesses = sorted(group.accesses, key=lambda a: a.offset)
        if group.kind != "ld" or group.unit != 4 or group.align != 4 or len(accesses) < 2:
            return [(access, access.size_bytes) for access in accesses]
        residue = int(lanes[active][0]) if active.any() else 0
        aligned = {size: bool(((lanes[active] - residue) % size == 0).all()) for size in (8, 16)}
        by_offset = {access.offset: access for access in reversed(accesses)}
        offsets = sorted(by_offset)
        out: list[tuple[Access, int]] = []
        at = 0
        while at < len(offsets):
            start = offsets[at]
            first = residue + start - group.lo
            for size in (16, 8, 4):
                words = size // 4
                run = offsets[at : at + words]
                whole = run == list(range(start, start + size, 4))
                if size == 4 or (whole and aligned[size] and first % size == 0):
                    out.append((by_offset[start], size))
                    at += words if size > 4 else 1
                    break
        return out

    def _count(self, access: Access, kind: str, requests: int, units: int, extra: int) -> None:
        number = access.site.number
        line = self.sites.get(number)
        if line is None:
            line = self.sites[number] = LineCounters()
            self.instrs[number] = access.site.ins
        if kind == "gld":
            line.global_load_requests += requests
            line.global_load_sectors += units
            line.global_load_bytes += extra
        elif kind == "gst":
            line.global_store_requests += requests
            line.global_store_sectors += units
            line.global_store_bytes += extra
        elif kind == "gatom":
            line.global_atomic_requests += requests
        elif kind == "sld":
            line.shared_load_instructions += requests
            line.shared_load_wavefronts += units
            line.shared_load_conflicts += extra
        elif kind == "bld":
            line.shared_load_bytes += extra
        elif kind == "sst":
            line.shared_store_instructions += requests
            line.shared_store_wavefronts += units
            line.shared_store_conflicts += extra
        elif kind == "bst":
            line.shared_store_bytes += extra
        elif kind == "satom":
            line.shared_atomic_instructions += requests

    def bump(self, ins: Instr, name: str, amount: int) -> None:
        """Add to one number of an instruction's line."""
        line = self.sites.setdefault(ins.line, LineCounters())
        self.instrs[ins.line] = ins
        setattr(line, name, getattr(line, name) + amount)

    # ---- instructions ----
    def block(self, x: Context, index: int, mask: Mask | None) -> None:
        """A basic block was run by some lanes."""
        if mask is None:
            warps, lanes = x.warps * x.B, x.lanes
        else:
            warps, lanes = int(x.active_warps(mask).any(axis=1).sum()), mask.lanes
        self.block_warps[index] = self.block_warps.get(index, 0) + warps
        self.block_lanes[index] = self.block_lanes.get(index, 0) + lanes

    def finish(self, program: Any) -> Counters:
        """The report: everything by source line."""
        mix: dict[str, int] = {}
        for index, warps in self.block_warps.items():
            block = program.blocks[index]
            lanes = self.block_lanes[index]
            for ins in [*block.instrs, *([block.last] if block.last else [])]:
                if ins.name.startswith("$") or "$around" in ins.mods:
                    continue
                mix[ins.name] = mix.get(ins.name, 0) + warps
                line = self.sites.setdefault(ins.line, LineCounters())
                self.instrs[ins.line] = ins
                line.warp_instructions += warps
                line.thread_instructions += lanes
                width = FLOAT_KINDS.get(ins.mods[-1], 0) if ins.mods else 0
                if width and ins.name in FLOP:
                    line.flop += FLOP[ins.name] * width * lanes
                    if ins.name in ("fma", "mad"):
                        line.fma += width * lanes
        lines: dict[tuple[str, int], LineCounters] = {}
        total = LineCounters()
        for number, counted in self.sites.items():
            loc = self.instrs[number].loc
            key = (loc.file, loc.line) if loc else ("", 0)
            lines.setdefault(key, LineCounters()).add(counted)
        for line in lines.values():
            total.add(line)
        return Counters(
            blocks=self.blocks,
            total=total,
            lines=dict(sorted(lines.items())),
            mix=dict(sorted(mix.items(), key=lambda item: -item[1])),
        )
