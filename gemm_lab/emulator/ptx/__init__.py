"""PTX text to an intermediate form: scanning, parsing, inlining, control flow. No NumPy here."""
