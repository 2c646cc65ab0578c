"""Kubelet's CPU, memory, device and topology managers: what they hint, admit and give. `admit` asks all of them."""
