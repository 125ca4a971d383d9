"""Puts the road together: from a question to a result, a measurement, a verdict."""
