"""PTX scalar types: size and kind."""

from __future__ import annotations

__all__ = ["TYPE_BYTES", "is_type"]

TYPE_BYTES: dict[str, int] = {
    "pred": 1,
    "b8": 1, "u8": 1, "s8": 1,
    "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "u16x2": 4, "s16x2": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8,
    "b128": 16,
}  # fmt: skip


def is_type(word: str) -> bool:
    """True for the name of a scalar type."""
    return word in TYPE_BYTES
