"""The resctrl file system of the emulated node."""
