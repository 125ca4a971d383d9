"""What generated code calls while it runs: memory, masks, arithmetic, warps, scheduling."""
