"""The same measurement on other kernels, on cgroup v2: in an emulated machine of one CPU, by an emulated clock.

    KERNEL_RIG=DIR python -m tests.perf.colocation.guest --kernel 6.12 6.1 [-- --service compute --batch compute]

The clock counts instructions, a nanosecond each, and leaps to the next timer while the CPU is idle. So whatever else
this machine does, a service takes as long as it has work and as the guest's scheduler lets it wait, and two runs are
alike. It has no caches and no second CPU: memory, sets of CPUs and hyperthreads say nothing here, and the agent's own
work is some three times as heavy beside the service's as on a real machine. Results go to `out/colocation/guest-
KERNEL.jsonl`.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import kernelrig

from tests.perf.colocation import engine
from tests.perf.colocation.__main__ import DEFAULT_WAYS

FOLDER = kernelrig.REPOSITORY / "out/colocation"
MOST_SECONDS = 3600
CLOCK = "-icount shift=0,sleep=off"
_WARM = """
{python} -m koordlite --help >/dev/null
timeout 60 {python} -m koordlite run --sandbox --ticks 2 >/dev/null 2>&1
{python} -c 'import tests.perf.colocation.page'
"""
"""The guest reads its files from this machine, during which its clock leaps: it has to have them before it measures."""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", nargs="+", default=["6.12", "6.1"])
    parser.add_argument("words", nargs="*", help="as for the measurement itself, after --")
    options = parser.parse_args()
    if why := kernelrig.missing():
        raise SystemExit(why)
    engine.compile_engine(FOLDER)  # Guests have this machine's compiler, and a clock that makes it slow.
    return max(_measure(kernel, options.words) for kernel in options.kernel)


def _measure(kernel: str, words: list[str]) -> int:
    defaults = ["--service", "compute", "--batch", "compute", "--settle", "24", "--way"]
    defaults += [way for way in DEFAULT_WAYS if "cpuset" not in way]
    results = ["--patience", "0", "--keep-disturbed", "--results", str(FOLDER / f"guest-{kernel}.jsonl")]
    measurement = shlex.join(["-m", "tests.perf.colocation", *defaults, *words, *results])
    script = f"export PYTHONPATH=tests/support:.\n{_WARM}{{python}} {measurement}".format(python=kernelrig.PYTHON)
    machine = {"KVER": kernel, "CGROUP": "2", "RDT": "none", "SMP": "1", "NUMA": "0", "MEM": "1024"}
    environment = {**machine, "QARGS": CLOCK, "CACHE9P": "loose", "TIMEOUT": str(MOST_SECONDS), **os.environ}
    command = [f"{kernelrig.RIG}/run.sh", "amd", str(kernelrig.REPOSITORY), script]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
