"""Amounts of CPU, and sets of CPUs."""
