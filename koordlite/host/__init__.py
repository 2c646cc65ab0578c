"""This machine: the only code that opens files under /sys, /proc and the agent's state folder."""
