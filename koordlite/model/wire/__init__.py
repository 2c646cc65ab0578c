"""Kubernetes objects as they come off the wire."""
