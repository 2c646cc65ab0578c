"""What cycles remember: earlier evictions and findings that are not ripe yet."""
