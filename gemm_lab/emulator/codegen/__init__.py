"""The intermediate form to Python functions over NumPy arrays, one function a basic block."""
