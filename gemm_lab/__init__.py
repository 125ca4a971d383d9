"""A playground for JIT-compiled GPU matrix multiplication."""
