"""Workloads of the emulated node: what they demand of CPU, memory and disks, and what they get."""
