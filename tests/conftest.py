"""Property tests take the same examples in every run, so that a red run is about what was changed.

`HYPOTHESIS_PROFILE=search`, or `--hypothesis-profile=search`, takes others each time, to look for what nobody thought
of.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
settings.register_profile("search", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
