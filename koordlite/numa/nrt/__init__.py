"""NodeResourceTopology as reporters and scheduler-plugins understand it."""
