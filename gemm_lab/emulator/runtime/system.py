"""Special registers, symbols, parameters and the calls that reach the host: printf, assert."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.faults import KernelAssertFault
from gemm_lab.emulator.runtime.arrays import DTYPES, Array
from gemm_lab.emulator.runtime.blame import Blame
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.machine import LOCAL_BASE, WARP
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.runtime.printf import format_printf, printf_arguments

__all__ = ["System", "scalar"]

CYCLES_A_STEP = 4


def scalar(value: int | float, dtype: str) -> Array:
    """A value that no lane, thread or block distinguishes: [1, 1, 1]."""
    return np.full((1, 1, 1), value, dtype=DTYPES[dtype])


class System(Blame):
    """Registers that the machine sets, and the way to the host."""

    def special(self, name: str) -> Array:
        """A special register as int32 (int64 for the wide ones), [Ty, Tx, B] or smaller."""
        found = self._special.get(name)
        if found is None:
            found = self._make_special(name)
            if not name.startswith(("%clock", "%globaltimer")):
                self._special[name] = found
        return found

    def _make_special(self, name: str) -> Array:
        base, _, axis = name[1:].partition(".")
        at = "xyzw".find(axis) if axis else -1
        setup = self.setup
        ty, tx, _ = self.shape
        if at == 3:
            return scalar(0 if "n" not in base else 1, "i32")
        if base == "tid":
            rows = np.arange(ty, dtype=np.int32).reshape(ty, 1, 1)
            if at == 0:
                return np.arange(tx, dtype=np.int32).reshape(1, tx, 1)
            out: Array = rows % setup.block[1] if at == 1 else rows // setup.block[1]
            return out if setup.block[at] > 1 else scalar(0, "i32")
        if base == "ntid":
            return scalar(setup.block[at], "i32")
        if base == "nctaid":
            return scalar(setup.grid[at], "i32")
        if base == "ctaid":
            return self._block_coordinate(at)
        linear = np.arange(self.threads, dtype=np.int32).reshape(ty, tx, 1)
        lane = linear % WARP
        one = np.int64(1)
        if base in ("laneid", "warpid"):
            return lane if base == "laneid" else linear // WARP
        if base.startswith("lanemask"):
            bit = one << lane.astype(np.int64)
            kind = base[-2:]
            value = {
                "eq": bit,
                "lt": bit - 1,
                "le": bit * 2 - 1,
                "gt": 0xFFFFFFFF - (bit * 2 - 1),
                "ge": 0xFFFFFFFF - (bit - 1),
            }[kind]
            return value.astype(np.uint32).view(np.int32)
        if base in ("clock64", "globaltimer"):
            return scalar(self.steps * CYCLES_A_STEP, "i64")
        if base in ("clock", "globaltimer_lo"):
            return scalar((self.steps * CYCLES_A_STEP) & 0x7FFFFFFF, "i32")
        return self._rest_special(base, at)

    def _block_coordinate(self, at: int) -> Array:
        gx, gy, _ = self.setup.grid
        ids = self.block_ids
        value = (ids % gx, ids // gx % gy, ids // (gx * gy))[at].astype(np.int32)
        if len(value) and (value == value[0]).all():
            return scalar(int(value[0]), "i32")
        return value.reshape(1, 1, -1)

    def _rest_special(self, base: str, at: int) -> Array:
        setup = self.setup
        cluster = setup.cluster
        if base in ("clusterid", "cluster_ctaid"):
            value = self._block_coordinate(at)
            part = value // cluster[at] if base == "clusterid" else value % cluster[at]
            return part.astype(np.int32)
        if base == "nclusterid":
            return scalar(setup.grid[at] // cluster[at], "i32")
        if base == "cluster_nctaid":
            return scalar(cluster[at], "i32")
        if base == "cluster_nctarank":
            return scalar(cluster[0] * cluster[1] * cluster[2], "i32")
        if base == "cluster_ctarank":
            x, y, z = (self._block_coordinate(k) % cluster[k] for k in range(3))
            rank: Array = x + cluster[0] * (y + cluster[1] * z)
            return rank.astype(np.int32)
        if base == "is_explicit_cluster":
            return scalar(int(cluster != (1, 1, 1)), "i32")
        if base == "nwarpid":
            return scalar(self.warps, "i32")
        if base == "nsmid":
            return scalar(setup.sm_count, "i32")
        if base == "smid":
            value = (self.block_ids % setup.sm_count).astype(np.int32)
            return value.reshape(1, 1, -1)
        if base == "dynamic_smem_size":
            return scalar(setup.smem_bytes, "i32")
        if base in ("total_smem_size", "aggr_smem_size"):
            return scalar(self.smem_bytes, "i32")
        return scalar(0, "i64" if base in ("gridid", "current_graph_exec") else "i32")

    def symbol(self, name: str, offset: int) -> Array:
        """Address of a module variable or the parameter block, [1, 1, 1]."""
        return scalar(self.setup.symbols[name] + offset, "i64")

    def param(self, offset: int, dtype: str) -> Array:
        """A kernel parameter's value, [1, 1, 1]."""
        kind = DTYPES[dtype]
        data = self.setup.param_block[offset : offset + kind.itemsize]
        return np.frombuffer(data, dtype=kind).reshape(1, 1, 1)

    def active_lanes(self, m: Mask | None) -> Array:
        """Flat numbers of the active lanes, block by block, threads in order."""
        lanes = self.lane_ids.reshape(-1) if m is None else self.lane_ids[m.full()]
        order: Array = lanes[np.lexsort((lanes // self.B, lanes % self.B))]
        return order

    def slot_values(self, offset: int, dtype: str, m: Mask | None) -> Array:
        """A call slot's values, one an active lane in the order of `active_lanes`."""
        lanes = self.active_lanes(m)
        words = DTYPES[dtype].itemsize // 4
        index = (offset // 4 + np.arange(words)) * self.lanes + lanes[:, None]
        data = np.ascontiguousarray(self.local.i32[index])
        return data.view(DTYPES[dtype]).reshape(-1)

    def lane_bytes(self, lane: int, address: int, size: int) -> bytes:
        """Bytes that one lane sees at a generic address."""
        if LOCAL_BASE <= address < LOCAL_BASE + self.local_bytes:
            first = (address - LOCAL_BASE) // 4
            words = np.arange(first, min(first + -(-size // 4), -(-self.local_bytes // 4)))
            return self.local.i32[words * self.lanes + lane].tobytes()
        buffer = self.memory.find(address)
        if buffer is None:
            return b""
        return self.memory.raw(buffer)[address - buffer.address :][:size].tobytes()

    def vprintf(self, slots: tuple[int, ...], m: Mask | None, site: Site) -> None:
        """printf of each active lane, in order of block and thread."""
        formats = self.slot_values(slots[1], "i64", m)
        arguments = self.slot_values(slots[2], "i64", m)
        out = self.setup.printf_output
        texts: dict[int, str] = {}
        for lane, at, args in zip(
            self.active_lanes(m).tolist(), formats.tolist(), arguments.tolist(), strict=True
        ):
            if len(out) >= self.setup.options.max_printf_lines:
                return
            text = texts.get(at)
            if text is None:
                text = texts[at] = self.memory.string(at)
            data = self.lane_bytes(lane, args, printf_arguments(text)) if args else b""
            out.append(format_printf(text, data, self.memory.string))
        count = self.active_lanes(m).size
        if len(slots) > 2 and count:
            words = slots[0] // 4 * self.lanes + self.active_lanes(m)
            self.local.i32[words] = 1

    def assert_fail(self, slots: tuple[int, ...], m: Mask | None, site: Site) -> None:
        """A device assert that failed: always a fault."""
        if m is not None and not m.lanes:
            return
        message = self.memory.string(int(self.slot_values(slots[0], "i64", m)[0]))
        line = int(self.slot_values(slots[2], "i32", m)[0])
        lane = int(self.active_lanes(m)[0])
        raise KernelAssertFault(
            "assert failed", f"{message} (line {line})", **self.blame_lane(lane, site)
        )

    def trap(self, m: Mask | None, site: Site) -> None:
        """A trap instruction."""
        raise KernelAssertFault(
            "trap", "the kernel gave up", **self.blame_lane(int(self.active_lanes(m)[0]), site)
        )
