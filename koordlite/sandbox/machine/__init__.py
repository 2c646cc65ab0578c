"""The emulated machine: its shapes, /proc, /sys, memory, disks and clock."""
