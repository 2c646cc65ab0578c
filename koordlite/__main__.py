"""`python -m koordlite` is `koordlite`."""

import sys

from koordlite.cli import main

if __name__ == "__main__":
    sys.exit(main())
