"""What runs on the emulated node: demands for CPU, memory and disks, and what the machine gives."""
