"""The command line; every command loads its own module when it is called."""

from gemm_lab.cli.app import app, main

__all__ = ["app", "main"]
