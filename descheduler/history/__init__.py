"""The memory of cycles: earlier evictions and findings that are not ripe yet."""
