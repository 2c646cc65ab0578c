"""The search for nodes that would take a pod, as the plan has left them so far."""
