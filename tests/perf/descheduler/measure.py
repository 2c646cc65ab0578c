"""What a cycle of the descheduler costs: every plugin alone and all together, from files and from an API server.

    python tests/perf/descheduler/measure.py [--nodes 100 1000 5000] [--http] [--plugins]

Each figure comes from a process of its own, so that memory is that cycle's alone: `decide` is plugins, guards, fit and
limits on a finished picture, `cycle` is everything from the start of the command to the plan. Seconds of life and CPU
seconds both: the first depend on what else the machine does. The clusters are those of `clusters.py`; 30 pods a node.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
POLICY = HERE / "policy.yaml"


def cycle(source: list[str], only: str) -> dict[str, object]:
    """One cycle in this process, and what it cost."""
    began, cpu_began = time.perf_counter(), time.process_time()
    from descheduler import cli, config, cycle

    args = cli.parser().parse_args(["plan", *source])
    setup = chosen(config.setup(config.load(str(POLICY))), only)
    with cli.no_collection():
        view = cli.picture(args)
        read, cpu_read = time.perf_counter(), time.process_time()
        plan = cycle.plan(view, setup)
        done, cpu_done = time.perf_counter(), time.process_time()
    return {
        "pods": sum(len(node.all_pods) for node in view.nodes.values()),
        "evict": len(plan.evict),
        "spare": len(plan.spare),
        "read": read - began,
        "decide": done - read,
        "cycle": done - began,
        "decide cpu": cpu_done - cpu_read,
        "cycle cpu": cpu_done - cpu_began,
        "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
