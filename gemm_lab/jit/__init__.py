"""CUDA C++ to machine code: NVRTC, headers, resources, the disk cache.

Importing it loads no compiler; the first kernel that is not in the cache does.
"""

from gemm_lab.jit.cache import (
    Cache,
    CacheEntry,
    CacheInfo,
    PruneResult,
    cache_directory,
    default_cache,
)
from gemm_lab.jit.compile import compile_kernel, compile_many, supported_arches
from gemm_lab.jit.compiler import compile_count
from gemm_lab.jit.log import log_warnings, numbered_source, parse_resources

__all__ = [
    "Cache",
    "CacheEntry",
    "CacheInfo",
    "PruneResult",
    "cache_directory",
    "compile_count",
    "compile_kernel",
    "compile_many",
    "default_cache",
    "log_warnings",
    "numbered_source",
    "parse_resources",
    "supported_arches",
]
