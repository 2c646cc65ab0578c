"""Which pods may be evicted, and how many of them."""
