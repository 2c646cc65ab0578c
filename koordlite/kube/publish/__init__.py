"""Objects that the agent writes to the cluster."""
