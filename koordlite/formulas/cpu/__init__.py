"""How much CPU, and which CPUs."""
