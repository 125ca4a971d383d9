"""What a variant's [model] table may say; the model reads it as a KernelShape.

The names are those of model.KernelShape, less what the compiler tells (registers and shared
memory). They stand here because the reader of variant files does not know the model; a test holds
the two together.
"""

from __future__ import annotations

__all__ = ["MODEL_KEYS", "MODEL_OPERANDS", "MODEL_OPERAND_KEYS", "MODEL_WORDS"]

MODEL_KEYS = (
    "unit", "block_m", "block_n", "block_k", "threads", "thread_m", "thread_n", "lanes_m",
    "lanes_n", "lanes_first", "warp_m", "warp_n", "staging", "stages", "global_vector_bytes",
    "store_vector_bytes", "shared_a", "shared_b", "shared_store_ways", "group_m", "cluster_m",
    "cluster_n", "split_k", "barriers",
)  # fmt: skip
MODEL_OPERANDS = ("shared_a", "shared_b")
MODEL_OPERAND_KEYS = (
    "vector_elements", "k_contiguous", "pitch_elements", "interleaved", "swizzled",
)  # fmt: skip
# Values that may be written as a bare word instead of an expression.
MODEL_WORDS: dict[str, tuple[str, ...]] = {
    "unit": ("cuda_core", "tensor"),
    "staging": ("none", "registers", "cp_async", "tma"),
    "lanes_first": ("m", "n"),
}
