"""The flight record: what every round saw and decided, small enough to be kept for a day, and how it is read again."""
