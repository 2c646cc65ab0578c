"""Guards of single pods, and limits on their number."""
