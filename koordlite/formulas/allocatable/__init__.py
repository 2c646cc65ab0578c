"""What a node offers, when it is written, and what is reserved."""
