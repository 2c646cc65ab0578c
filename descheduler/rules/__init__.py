"""Arithmetic that several plugins share."""
