"""Arguments of MigrationController."""

from __future__ import annotations

import json
from typing import Any

from descheduler.arguments.migration import MigrationControllerArgs
from koordlite.model.errors import ConfigError
from koordlite.model.reading import strict
from tests.conformance.adapters import adapter
from tests.conformance.descheduler_view import written


@adapter("ValidateMigrationControllerArgs")
def validated(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        strict.load(json.dumps(written(given["args"])), MigrationControllerArgs, "args")
    except ConfigError as error:
        return (False, str(error)) if expect["valid"] else False, expect["valid"]
    return True, expect["valid"]
