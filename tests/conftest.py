"""Property tests take the same examples in every run, so that a red run is about what was changed.

`HYPOTHESIS_PROFILE=search`, or `--hypothesis-profile=search`, takes others each time, to look for what nobody thought
of.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

# A loaded machine is slow, which says nothing about the change either.
_PATIENT: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, **_PATIENT)
settings.register_profile("search", print_blob=True, **_PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
