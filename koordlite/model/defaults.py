"""Default addresses of an agent; a module of its own, so that a command that asks it imports little else."""

PORT = 9316
STATE_DIR = "/run/koordlite"
LONGEST_LOG_SECONDS = 86_400
"""A changed log level ends by itself after so long at most."""

NUMA_NODES = 8
"""NUMA nodes of a machine, as kubelet has it by default (`max-allowable-numa-nodes`). Their sets are searched, and each
further one doubles the time."""
MOST_NUMA_NODES = 12
"""Upper bound of the setting: 4,095 sets."""
