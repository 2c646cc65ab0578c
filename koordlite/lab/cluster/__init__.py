"""The cluster around the emulated node, and scenarios that change it."""
