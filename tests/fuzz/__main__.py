"""`make fuzz SECONDS=60 [ENTRY=name]`: search for inputs that the product does not answer."""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import time

from tests.fuzz import frame


def main(arguments: list[str]) -> int:
    """1 when something was found, 2 for a name that no entry has."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all entries together (default: 60)")
    parser.add_argument("--inputs", type=int, default=0, help="so many for each entry, instead of seconds")
    parser.add_argument("--entry", action="append", help="only this entry; may be repeated")
    parser.add_argument("--seed", type=int, default=time.time_ns(), help="of the search (default: another each time)")
    parser.add_argument("--forget", action="store_true", help="keep nothing in the corpus")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    known = frame.entries()
    unknown = set(options.entry or ()) - known.keys()
    if unknown:
        print(f"no entry is called {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in options.entry or known]
    whole = sum(entry.weight for entry in chosen)
    total = findings = 0
    print(f"seed {options.seed}")
    for entry in chosen:
        share = options.seconds * entry.weight / whole
        found = frame.search(entry, seed=options.seed, seconds=share, inputs=options.inputs)
        total, findings = total + found.inputs, findings + len(found.findings)
        print(
            f"{entry.name}: {found.inputs} inputs in {found.seconds:.1f} s, {len(found.outcomes)} outcomes, "
            f"slowest {1000 * found.slowest_seconds:.0f} ms, {len(found.findings)} findings",
            flush=True,
        )
        for finding in found.findings.values():
            where = "" if options.forget else f", kept as {finding.keep()}"
            print(f"  {finding.kind}: {finding.place}{where}\n    " + finding.text.strip().replace("\n", "\n    "))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{total} inputs, {findings} findings, at most {peak_mib} MiB")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
