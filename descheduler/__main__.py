"""`python -m descheduler`."""

import sys

from descheduler.cli import main

sys.exit(main())
