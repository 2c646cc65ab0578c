"""Reports as JSON."""
