"""Hardware cases of wgmma: shared memory full of noise, and one product that descriptors describe.

Whatever the card reads through a descriptor, the emulator must read too: layouts, swizzles,
strides, majors, A from registers, scales and signs are all told apart by the product alone.
"""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hardware_case import PER_REGISTER, Case, random_words
from tensor_kernels import HOPPER

__all__ = ["wgmma_cases"]

B_AT = 16384
SMEM_BYTES = 3 * 16384 + 32768
SWIZZLE_BITS = {0: 0, 128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Operand:
    """A matrix in shared memory: offsets in bytes, `span` of the swizzle (0 for none)."""

    span: int = 128
    leading: int = 16
    stride: int = 1024
    transposed: bool = False
    shift: int = 0

    def descriptor(self, at: int) -> int:
        """All but the base address of the shared memory, to which it is added in 16-byte units."""
        low = (at + self.shift >> 4) | self.leading >> 4 << 16 | self.stride >> 4 << 32
        return low | SWIZZLE_BITS[self.span] << 62


def _case(
    name: str, kinds: str, columns: int = 64, a: Operand | None = None, b: Operand | None = None,
    *, out: str = "", scale_d: int = 1, signs: tuple[int, int] = (1, 1),
) -> Case:  # fmt: skip
    """One wgmma; A comes from registers when it is None."""
    kind_a, kind_b = kinds.split(".")
    per = PER_REGISTER[kind_a]
    integer = kind_a in ("s8", "u8")
    out = out or ("s32" if integer else "f32")
    b = b or Operand()
    count = columns // (4 if out == "f16" else 2)
    letter, c_type = {"f32": ("f", "float"), "s32": ("r", "int"), "f16": ("r", "unsigned")}[out]
    d = ", ".join(f"%{i}" for i in range(count))
    left = f"{{{', '.join(f'%{count + i}' for i in range(4))}}}" if a is None else f"%{count}"
    after = count + (4 if a is None else 1)
    tail = ["p"]
    if not integer:
        tail += [str(sign) for sign in signs]
    if per == 2:
        tail += [str(int(m.transposed)) for m in (a, b) if m is not None]
    ins = [f'"r"(regs[{i} * 128 + t])' for i in range(4)] if a is None else ['"l"(da)']
    source = (
        HOPPER
        + f"""
extern "C" __global__ void k(const uint4 *data, const unsigned *regs, const {c_type} *c, {c_type} *o, int scale) {{
  extern __shared__ __align__(1024) unsigned char smem[];
  int t = threadIdx.x;
  for (int i = t; i < {SMEM_BYTES // 16}; i += 128) ((uint4 *)smem)[i] = data[i];
  {c_type} d[{count}];
  for (int i = 0; i < {count}; i++) d[i] = c[i * 128 + t];
  proxy_fence(); __syncthreads();
  u64 base = shared_address(smem) >> 4, da = {(a or Operand()).descriptor(0):#x}ull + base, db = {b.descriptor(B_AT):#x}ull + base;
  wg_fence();
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{after + 1}, 0; "
    "wgmma.mma_async.sync.aligned.m64n{columns}k{8 * per}.{out}.{kind_a}.{kind_b} {{{d}}}, {left}, %{after}, {", ".join(tail)}; }}"
    : {", ".join(f'"+{letter}"(d[{i}])' for i in range(count))} : {", ".join(ins)}, "l"(db), "r"(scale));
  wg_commit(); wg_wait();
  for (int i = 0; i < {count}; i++) o[i * 128 + t] = d[i];
}}
"""
    )
    data = np.concatenate(
        [
            random_words(kind_a, (B_AT // 4,), 1),
            random_words(kind_b, ((SMEM_BYTES - B_AT) // 4,), 2),
        ]
    )
    if out == "f16":
        c: np.ndarray = random_words("f16", (count, 128), 4)
    elif integer:
        c = np.random.default_rng(4).integers(-(2**30), 2**30, (count, 128), dtype=np.int32)
    else:
        c = np.random.default_rng(4).uniform(-2, 2, (count, 128)).astype(np.float32)
    o = np.zeros_like(c)
    fp8 = kind_a.startswith("e")
    tolerance = 8e-3 if out == "f16" else 0.0 if integer else 1e-2 if fp8 else 1e-4
    return Case(
        f"wgmma {name}",
        source,
        (data, random_words(kind_a, (4, 128), 3), c, o.view(np.float16) if out == "f16" else o, scale_d),
        (3,), arch="sm_90a", block=128, smem_bytes=SMEM_BYTES, tolerance=tolerance,
    )  # fmt: skip


# K-major: 8 rows of `span` bytes an atom; stride leads to the next 8 rows.
K_MAJOR = {
    "128B": Operand(128, 16, 1024),
    "64B": Operand(64, 16, 512),
    "32B": Operand(32, 16, 256),
    "none": Operand(0, 128, 256),
}
# Strides that no packed tile has, and later parts of K in an atom.
K_MAJOR_LOOSE = {
    "128B +32": Operand(128, 16, 1024, shift=32),
    "128B +96 loose": Operand(128, 16, 2048, shift=96),
    "64B +32 loose": Operand(64, 16, 1024, shift=32),
    "32B loose": Operand(32, 16, 768),
    "none loose": Operand(0, 2048, 128),
}
# MN-major: atoms of `span` bytes along M or N and 8 of K.
MN_MAJOR = {
    "128B": Operand(128, 2048, 1024, transposed=True),
    "64B": Operand(64, 1024, 512, transposed=True),
    "32B": Operand(32, 512, 256, transposed=True),
    "none": Operand(0, 128, 256, transposed=True),
    "128B loose": Operand(128, 4096, 2048, transposed=True),
    "64B loose": Operand(64, 512, 2048, transposed=True),
    "32B loose": Operand(32, 256, 1024, transposed=True),
    "none loose": Operand(0, 1024, 128, transposed=True),
}
KINDS = ("f16.f16", "bf16.bf16", "tf32.tf32", "e4m3.e4m3", "s8.s8")


def wgmma_cases() -> Iterator[Case]:
    """All of them."""
    plain = K_MAJOR["128B"]
    for kinds in KINDS:
        for name, operand in K_MAJOR.items():
            yield _case(f"{kinds} {name}", kinds, a=operand, b=operand)
    for name, operand in K_MAJOR_LOOSE.items():
        yield _case(f"f16.f16 A {name}", "f16.f16", a=operand, b=plain)
        yield _case(f"bf16.bf16 B {name}", "bf16.bf16", a=plain, b=operand)
    for name, operand in MN_MAJOR.items():
        yield _case(f"f16.f16 A MN {name}", "f16.f16", a=operand, b=plain)
        yield _case(f"bf16.bf16 B MN {name}", "bf16.bf16", a=plain, b=operand)
        yield _case(f"f16.f16 B MN {name} n128", "f16.f16", 128, plain, operand)
    yield _case("bf16.bf16 both MN", "bf16.bf16", a=MN_MAJOR["128B"], b=MN_MAJOR["64B"])
    for kinds in ("e5m2.e5m2", "e4m3.e5m2", "e5m2.e4m3", "u8.u8", "s8.u8", "u8.s8"):
        yield _case(kinds, kinds, a=plain, b=plain)
    for kinds in KINDS:
        yield _case(f"{kinds} A in registers", kinds, b=plain)
    yield _case("f16.f16 A in registers B MN", "f16.f16", b=MN_MAJOR["128B"])
    for columns in (8, 24, 40, 128, 256):
        yield _case(f"bf16.bf16 n{columns} whole", "bf16.bf16", columns, plain, plain)
    for kinds in ("f16.f16", "e4m3.e4m3"):
        yield _case(f"{kinds} to f16", kinds, a=plain, b=plain, out="f16")
    for kinds in KINDS:
        yield _case(f"{kinds} scale_d 0", kinds, a=plain, b=plain, scale_d=0)
    for signs in ((-1, 1), (1, -1), (-1, -1)):
        for kinds in ("f16.f16", "tf32.tf32", "e4m3.e4m3"):
            name = f"{kinds} signs {signs[0]} {signs[1]}"
            yield _case(name, kinds, a=plain, b=plain, signs=signs)
    yield _case("bf16.bf16 A in registers negated", "bf16.bf16", b=plain, signs=(-1, 1), scale_d=0)
