"""Crane's rules: which CPUs a pod gets, what its scheduler answers, what its NodeResourceTopology says."""
