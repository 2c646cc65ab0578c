"""A node's offer, when it is written, and what is reserved."""
