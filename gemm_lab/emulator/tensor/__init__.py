"""Tensor cores and asynchronous copies: fragments, barriers in memory, TMA, wgmma, clusters."""
