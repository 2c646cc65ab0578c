"""Where an agent is found by default; a module of its own, so that a command that asks it imports little else."""

PORT = 9316
STATE_DIR = "/run/koordlite"
LONGEST_LOG_SECONDS = 86_400
"""A changed log level ends by itself after so long at most."""
