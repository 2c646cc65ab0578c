"""The cgroup trees of the emulated node, with the kernel's rules for v1 and v2."""
