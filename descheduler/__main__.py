"""Entry point of the command, also of `python -m descheduler`."""

import sys

from koordlite.__main__ import begin


def main() -> int:
    """`descheduler`."""
    return begin("descheduler", "descheduler.cli")


if __name__ == "__main__":
    sys.exit(main())
