"""What runs on the emulated node, what it demands of CPU, memory and disks, and what it gets."""
