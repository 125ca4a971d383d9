"""CUDA C++ to machine code: NVRTC, headers, resources, the disk cache.

Importing it loads no compiler; the first kernel that is not in the cache does.
"""

from gemm_lab.jit.cache import (
    Cache,
    CacheEntry,
    CacheInfo,
    PruneResult,
    default_cache,
)
from gemm_lab.jit.compile import compile_kernel, compile_many, supported_arches
from gemm_lab.jit.compiler import compile_count
from gemm_lab.jit.doctor import checks
from gemm_lab.jit.environment import prepare_cupy_environment
from gemm_lab.jit.log import log_warnings, numbered_source, parse_resources
from gemm_lab.jit.places import cache_directory

__all__ = [
    "Cache",
    "CacheEntry",
    "CacheInfo",
    "PruneResult",
    "cache_directory",
    "checks",
    "compile_count",
    "compile_kernel",
    "compile_many",
    "default_cache",
    "log_warnings",
    "numbered_source",
    "parse_resources",
    "prepare_cupy_environment",
    "supported_arches",
]
