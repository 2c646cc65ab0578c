"""NUMA: violations, fit, and the zones that are published."""
