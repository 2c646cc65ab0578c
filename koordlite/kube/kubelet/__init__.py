"""Kubelet's answers, and the files it wrote."""
