"""What a bulk copy must keep: addresses, sizes, tensor maps."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.faults import MemoryFault
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.tensor.maps import MAP_BYTES, TensorMap, decode_tensor_map
from gemm_lab.emulator.tensor.mbarriers import Mbarriers

__all__ = ["BulkChecks"]


class BulkChecks(Mbarriers):
    """Checks of bulk copies, and the lanes that issue them."""

    def _check_shared(self, at: Array, size: int, align: int, lanes: Array, site: Site) -> None:
        bad = (at < 0) | (at + size > self.smem_bytes)
        if bad.any():
            first = int(bad.argmax())
            raise self._bulk_fault(
                "out of bounds",
                f"a copy of {size} bytes at shared address {int(at[first]):#x}; the block has "
                f"{self.smem_bytes} bytes of shared memory",
                int(lanes[first]),
                site,
            )
        bad = (at & (align - 1)) != 0
        if bad.any() or size % 16:
            first = int(bad.argmax())
            raise self._bulk_fault(
                "misaligned",
                f"a copy of {size} bytes at shared address {int(at[first]):#x}, which must be a "
                f"multiple of {align}, the size one of 16",
                int(lanes[first]),
                site,
            )

    def _check_coordinates(
        self, map_: TensorMap, coords: list[Array], store: bool, lanes: Array, site: Site
    ) -> None:
        """A box starts at a multiple of 16 bytes, and for a store at no negative coordinate.

        A card reports an illegal instruction for either. The first is not in the PTX ISA; the
        second is in the CUDA Programming Guide, "Negative indices and out of bounds".
        """
        if len(coords) != len(map_.dims):
            raise self._bulk_fault(
                "tensor map", f"{len(coords)} coordinates for {len(map_.dims)} dimensions",
                int(lanes[0]), site,
            )  # fmt: skip
        start = coords[0] * map_.element_bytes
        bad = (start & 15) != 0
        if bad.any():
            first = int(bad.argmax())
            raise self._bulk_fault(
                "misaligned",
                f"the box starts at element {int(coords[0][first])} of its rows, at byte "
                f"{int(start[first])}, which must be a multiple of 16",
                int(lanes[first]),
                site,
            )
        for axis, at in enumerate(coords):
            if store and (at < 0).any():
                first = int((at < 0).argmax())
                raise self._bulk_fault(
                    "out of bounds",
                    f"a store of a box whose coordinate {axis} is {int(at[first])}; only a load "
                    "may start before the tensor",
                    int(lanes[first]),
                    site,
                )

    def _check_heap(self, at: Array, size: int, lanes: Array, site: Site) -> None:
        if len(at) and (at & 15).any():
            raise self._bulk_fault(
                "misaligned", "a global address that is no multiple of 16", int(lanes[0]), site
            )
        for address, lane in zip(at.tolist(), lanes.tolist(), strict=True):
            self._check_span(address, address + size, np.array([lane]), site)

    def _check_span(self, low: int, high: int, lanes: Array, site: Site) -> None:
        buffer = self.memory.find(low)
        if buffer is None or high > buffer.end:
            raise MemoryFault(
                "out of bounds",
                f"a bulk access of [{low:#x}, {high:#x}); {self._neighbourhood(high, 'global')}",
                address=low,
                **self.blame_lane(int(lanes[0]), site),
            )

    def _bulk_fault(self, kind: str, message: str, lane: int, site: Site) -> MemoryFault:
        return MemoryFault(kind, message, **self.blame_lane(lane, site))

    def _lane(self, value: Array, lane: Array) -> Array:
        """Values of given lanes."""
        return np.broadcast_to(value, self.shape).reshape(-1)[lane].astype(np.int64)

    def tensor_map_at(self, address: int, lane: int, site: Site) -> TensorMap:
        """The map that a lane points at."""
        found = self.setup.maps.get(address)
        if found is None:
            buffer = self.memory.find(address)
            data = b""
            if buffer is not None:
                start = address - buffer.address
                data = self.memory.raw(buffer)[start : start + MAP_BYTES].tobytes()
            try:
                found = decode_tensor_map(data)
            except MemoryFault as fault:
                raise MemoryFault(
                    fault.kind, "the address holds no tensor map", hint=fault.hint,
                    **self.blame_lane(lane, site),
                ) from None  # fmt: skip
            self.setup.maps[address] = found
        map_: TensorMap = found
        return map_

    def _by_map(self, address: Array, m: Mask | None) -> list[tuple[int, Array]]:
        """Active lanes by the map that they name."""
        lanes = self.lane_ids.reshape(-1) if m is None else self.lane_ids[m.full()]
        found = self._lane(address, lanes)
        return [(int(v), lanes[found == v]) for v in np.unique(found)]
