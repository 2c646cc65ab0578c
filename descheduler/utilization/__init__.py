"""Use of nodes, and the pods that leave the full ones: the arithmetic of the plugins that even out nodes. Pure."""
