"""Reports about a running extender: JSON, text, a page, metrics, and the log."""
