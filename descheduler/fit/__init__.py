"""Would a pod fit elsewhere? Asked of the nodes as the plan has left them so far."""
