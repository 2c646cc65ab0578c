"""cgroup v1 and v2 behind one set of logical names."""
