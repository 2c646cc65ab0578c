"""Arguments of plugins, filters and cycles as checked values."""
