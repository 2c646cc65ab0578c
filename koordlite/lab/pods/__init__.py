"""The kubelet of the emulated node, and what it makes of pods."""
