"""What a cycle of the descheduler costs: every plugin alone and all together, from files and from an API server.

    PYTHONPATH=tests/support python tests/perf/descheduler/measure.py [--nodes 100 1000 5000] [--plugins] [--http 1000]
    PYTHONPATH=tests/support python tests/perf/descheduler/measure.py --reports --kind varied --nodes 1000 5000 10000

Each row comes from a process of its own, so that its memory is that cycle's alone: `read` makes the picture, `decide`
is plugins, guards, fit and limits on the finished picture, `cycle` is everything from the process' start to the plan.
CPU seconds are what the work costs, `loops` is the same as a multiple of a loop that is timed beside it; seconds of
life depend on what else the machine does. Clusters are those of
`clusters.py`, 30 pods a node, and the policy is `policy.yaml` without any limit, so that nothing ends early.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "support")]
POLICY = HERE / "policy.yaml"
COLUMNS = ("pods", "evict", "kept", "read cpu", "decide cpu", "cycle cpu", "loops", "decide", "cycle", "MiB")


def one(where: list[str], only: str) -> dict[str, float]:
    """One cycle in this process, and what it cost. `only`: a single plugin of the policy."""
    began = time.perf_counter()
    from descheduler.cli import parser, source
    from descheduler.cycle import planner
    from descheduler.policy import reader

    document = reader.load(str(POLICY))
    setup = _only(reader.setup(document), only)
    with source.no_collection():
        view = source.PictureSource(parser().parse_args(["plan", *where])).view(document, setup)
        read, cpu_read = time.perf_counter(), time.process_time()
        plan = planner.plan(view, setup)
        done, cpu_done = time.perf_counter(), time.process_time()
    return {
        "pods": sum(len(node.all_pods) for node in view.nodes.values()),
        "evict": len(plan.evict),
        "kept": len(plan.kept),
        "read cpu": cpu_read,
        "decide cpu": cpu_done - cpu_read,
        "cycle cpu": cpu_done,
        "loops": cpu_done / reference(),
        "decide": done - read,
        "cycle": done - began,
        "MiB": mib(),
    }


def reference() -> float:
    """CPU seconds of a loop of twenty million steps, here and now: what a figure is a multiple of."""
    began, total = time.process_time(), 0
    for number in range(20_000_000):
        total += number & 7
    return time.process_time() - began


def headings() -> None:
    """Print the first line of a table."""
    print(f"{'':45}{''.join(f'{c:>11}' for c in COLUMNS)}")


def mib(name: str = "VmHWM") -> float:
    """Most resident memory of this very process, or `VmRSS`: ru_maxrss would count what it was forked from."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


def _only(setup: Any, name: str) -> Any:
    import msgspec

    if not name:
        return setup
    profiles = [
        msgspec.structs.replace(p, plugins=tuple(x for x in p.plugins if x[0].name == name)) for p in setup.profiles
    ]
    return msgspec.structs.replace(setup, profiles=tuple(p for p in profiles if p.plugins))


def plugins() -> list[str]:
    """Names of the policy's plugins."""
    from descheduler.policy import reader

    return [plugin.name for profile in reader.setup(reader.load(str(POLICY))).profiles for plugin, _ in profile.plugins]


def measured(source: list[str], only: str = "") -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", only, *source]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"}
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def row(name: str, found: dict[str, float]) -> None:
    """Print one line of a table."""
    shown = [f"{found[c]:11.0f}" if c in ("pods", "evict", "kept", "MiB") else f"{found[c]:11.2f}" for c in COLUMNS]
    print(f"{name:45}{''.join(shown)}", flush=True)


def command(where: pathlib.Path, form: str, policy: pathlib.Path) -> float:
    """Print what a whole command costs, from its start to the last byte of the report; its CPU seconds."""
    words = [sys.executable, "-m", "descheduler", "plan", "--snapshot", str(where), "--policy", str(policy)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([*words, "--output", form], stdout=output, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        size = os.fstat(output.fileno()).st_size
    cpu = used.ru_utime + used.ru_stime
    figures = f"{cpu:8.2f} CPU s {cpu / reference():7.1f} loops {used.ru_maxrss / 1024:7.0f} MiB {size / 1e6:8.2f} MB"
    print(f"{where.name:>10} {form:5} {figures}{'' if status == 0 else '  FAILED'}", flush=True)
    return cpu


def reports(sizes: list[int], folder: pathlib.Path, policy: pathlib.Path, *, kind: str) -> None:
    """Whole commands in all forms, for each size, and by which power of the size they grow."""
    print(f"whole commands, {kind} clusters, {policy.name}")
    costs = []
    for nodes in sizes:
        where = folder / kind / str(nodes)
        cluster(where, nodes, kind)
        costs.append(sum(command(where, form, policy) for form in ("text", "json", "html")))
    for (few, less), (many, more) in itertools.pairwise(zip(sizes, costs, strict=True)):
        print(f"{few:>10} → {many}: exponent {math.log(more / less) / math.log(many / few):.2f}")


def cluster(where: pathlib.Path, nodes: int, kind: str) -> None:
    """Write it, unless it is there."""
    import clusters
    import varied

    if not where.exists():
        {
            "even": clusters.write,
            "varied": varied.write,
            "each": functools.partial(varied.write, each=True),
        }[kind](where, nodes)


def from_files(sizes: list[int], folder: pathlib.Path, *, kind: str, by_plugin: bool) -> None:
    """The growth table, and below each size every plugin alone."""
    headings()
    for nodes in sizes:
        where = folder / kind / str(nodes)
        cluster(where, nodes, kind)
        row(f"{nodes} nodes, all plugins", measured(["--snapshot", str(where)]))
        for name in plugins() if by_plugin else ():
            row(f"  {name}", measured(["--snapshot", str(where)], name))


def from_http(nodes: int, folder: pathlib.Path) -> None:
    """The same cluster out of lists of the emulated API server, which runs in this process."""
    import clusters
    from apiserver import ApiServer

    where = folder / str(nodes)
    clusters.write(where, nodes)
    with ApiServer() as server:
        for name in ("nodes", "namespaces", "pods", "budgets"):
            server.objects.load(*json.loads((where / f"{name}.json").read_text())["items"])
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        row(f"{nodes} nodes over HTTP", measured(["--kubeconfig", str(kubeconfig), "--now", clusters.NOW]))


def main() -> None:
    """Parse and print."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(sys.argv[3:], sys.argv[2])))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="*", default=[100, 1000, 5000])
    parser.add_argument(
        "--kind",
        choices=("even", "varied", "each"),
        default="even",
        help="clusters.py, or varied.py, `each` with --each",
    )
    parser.add_argument("--reports", action="store_true", help="whole commands with their reports instead of cycles")
    parser.add_argument("--policy", type=pathlib.Path, default=POLICY, help="for --reports")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep the clusters there for the next time")
    parser.add_argument("--plugins", action="store_true", help="every plugin alone, too")
    parser.add_argument("--http", type=int, default=0, metavar="NODES", help="such a cluster from an API server, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="descheduler-perf-") as name:
        folder = args.keep or pathlib.Path(name)
        if args.reports:
            reports(args.nodes, folder, args.policy, kind=args.kind)
            return
        from_files(args.nodes, folder, kind=args.kind, by_plugin=args.plugins)
        if args.http:
            from_http(args.http, folder)


if __name__ == "__main__":
    main()
