"""`PYTHONPATH=tests/support python -m tests.conformance PATH...`: run vector files or folders, from the root."""

from __future__ import annotations

import collections
import sys
from pathlib import Path

from tests.conformance import adapters, runner
from tests.conformance.runner import NO_ADAPTER


def main(arguments: list[str]) -> int:
    """1 when any case failed, 2 without a path, else 0."""
    if not arguments:
        print("usage: PYTHONPATH=tests/support python -m tests.conformance PATH...", file=sys.stderr)
        return 2
    adapters.load()
    failures = 0
    for path in runner.files(map(Path, arguments)):
        outcomes = runner.run(path)
        print(f"{path.name}: {runner.summary(outcomes)}")
        for outcome in outcomes:
            if outcome.verdict == "failed":
                print(f"  failed: {outcome.function} {outcome.source}\n    {outcome.detail}")
        for rule, count in collections.Counter(o.detail for o in outcomes if o.verdict == "deviating").items():
            print(f"  deviating, {count}: {rule}")
        for function, count in collections.Counter(o.function for o in outcomes if o.verdict == NO_ADAPTER).items():
            print(f"  no adapter, {count}: {function}")
        failures += sum(outcome.verdict == "failed" for outcome in outcomes)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
