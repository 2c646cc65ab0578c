"""Scenarios played on the emulated node in compressed time, by the agent that runs on real ones.

The same file, seed and settings give the same result, byte by byte.
"""
