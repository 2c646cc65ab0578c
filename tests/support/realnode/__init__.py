"""What tests on a real kernel share: a kubelet-like cgroup tree, its manifests, and the agent as a process."""
