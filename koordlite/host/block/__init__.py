"""Block devices, and what cgroups have of them."""
