"""A folder of files as the cluster."""
