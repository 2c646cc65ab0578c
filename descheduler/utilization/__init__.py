"""How full nodes are, and who leaves the full ones: the arithmetic of the plugins that even out nodes. Pure."""
