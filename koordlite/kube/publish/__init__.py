"""What the agent writes to the cluster."""
