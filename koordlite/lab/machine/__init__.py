"""The emulated machine as data, its file tree, processes and clock."""
