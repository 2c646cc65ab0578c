"""Amounts to release, and the pods that go for them."""
