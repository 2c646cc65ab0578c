"""The plan of a cycle as values."""
