"""The flight record: what every round saw and decided, small enough to keep for a day, and how to read it."""
