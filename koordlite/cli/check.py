"""Checks, which read, report and change nothing: `check-config`, every mistake in settings and manifests; `check-node`,
the fitness of a machine for the agent, question by question: yes, no or partly, and what to do. Beside them
`default-config` and `completion`."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus

import msgspec

from koordlite import cli, commandline, config
from koordlite.cli import machine as machines
from koordlite.cli import profile
from koordlite.clock import RealClock
from koordlite.config import Settings
from koordlite.formulas.allocatable import reservation
from koordlite.host import bundle, core_scheduling, processes, procfs, sysfs
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.processes import HostProcess
from koordlite.kube.client.access import Api, ApiError, ApiUnreachable
from koordlite.kube.cluster import KubeCluster
from koordlite.kube.folder.manifests import ManifestCluster
from koordlite.model import keys, printable, times
from koordlite.model import node as nodes
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import ConfigError, HardwareAbsent, InputError, KoordliteError, Problem, noting
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.slo import config as slo_config
from koordlite.ports import Cluster, ClusterView, Files
from koordlite.report.units import cores
from koordlite.resctrl.filesystem import ResctrlFS


def check_config(args: argparse.Namespace) -> int:
    """Print every mistake. 0 when there is none, 1 otherwise."""
    if not args.file and not args.cluster:
        do = "name koordlite.yaml or --cluster DIR"
        raise ConfigError(Problem("command line", "FILE", "", "nothing to check", do))
    problems: list[Problem] = []
    warnings: list[str] = []
    profiles: list[str] = []
    off = config.off(config.default())
    if args.file:
        with noting(problems):
            settings = config.load(pathlib.Path(args.file))
            warnings += [f"{pathlib.Path(args.file)}: {warning}" for warning in _without_effect(settings)]
            off = config.off(settings)
    if args.cluster:
        folder = pathlib.Path(args.cluster)
        refusals = _check_cluster(folder, args.node, off, problems)
        profiles, wrong = profile.takers(folder)
        problems += wrong
        warnings += refusals
    count = "1 problem" if len(problems) == 1 else f"{len(problems) or 'no'} problems"
    commandline.print_answer(
        args.output,
        "koordlite-check-config",
        {"problems": problems, "warnings": warnings, "profiles": profiles},
        (*map(str, problems), *(f"warning: {warning}" for warning in warnings), *profiles, count),
    )
    return 1 if problems else 0


def check_node(args: argparse.Namespace) -> int:
    """Print what the machine offers. 1 when the agent could not work here."""
    settings = machines.settings(args)
    answers = list(findings(args, settings))
    width, lines = max(len(finding.what) for finding in answers), list[str]()
    for finding in answers:
        lines.append(f"{finding.answer:<4} {finding.what:<{width}}  {finding.detail}")
        lines += [f"{'':<5}{'':<{width}}  → {finding.do}"] if finding.do else []
    commandline.print_answer(args.output, "koordlite-check-node", {"findings": answers}, lines)
    return 1 if any(finding.answer == "NO" for finding in answers) else 0


def default_config(args: argparse.Namespace) -> int:
    """Print koordlite.yaml with every default."""
    print(printable.lines(config.print_default()), end="")
    return 0


def completion(args: argparse.Namespace) -> int:
    """Print the script for a shell."""
    print(printable.lines(commandline.completion(cli.parser(), args.shell)))
    return 0


def _without_effect(settings: Settings) -> Iterable[str]:
    """Settings that are allowed and have not the effect that they seem to have."""
    if settings.publish.node_resources == "agent":
        return
    for name in config.yielded_to_manager(settings):
        yield f"strategies.{name}.mode = 'enforce': it observes, since publish.nodeResources is manager"
    if settings.publish.node_metric == "off":
        yield (
            "publish.nodeResources = 'manager': Koordinator's manager takes batch resources back degradeTimeMinutes"
            " after the last NodeMetric; set publish.nodeMetric to on"
        )


def _check_cluster(folder: pathlib.Path, name: str | None, off: frozenset[str], problems: list[Problem]) -> list[str]:
    """Pods that run here but that Koordinator's webhook would refuse in a cluster. `problems` gets those of the files,
    of the ConfigMap, and of every annotation the agent reads."""
    from koordlite.formulas.admission import admission
    from koordlite.model.picture import node_notes
    from koordlite.model.pod import pod_reader

    view = ManifestCluster(folder, node_name=name, clock=RealClock()).view()
    problems += view.problems
    node, owner = (nodes.from_wire(view.node), f"node/{view.node.metadata.name}") if view.node else (None, "node")
    notes = node.annotations if node else {}
    if node:
        problems += node.problems
        text = notes.get(keys.RESERVATION, "")
        with noting(problems):
            written = nodes.parse_reservation(text, owner)
            ignored = written.ignored if written else ()
            # Each name in it that means nothing.
            problems += (Problem(owner, keys.RESERVATION, text, why, "correct the annotation") for why in ignored)
        with noting(problems):
            nodes.parse_system_qos(notes.get(keys.SYSTEM_QOS), owner)
        node_notes.parse(notes, owner, last=node_notes.NodeNotes(), problems=problems)
    slo = slo_config.effective(view.config, labels=node.labels if node else {}, annotations=notes, node_owner=owner)
    problems += (*slo.problems, *slo_config.unused_problems(slo, node_owner=owner, off=off))
    refusals: list[str] = []
    for pod in map(pod_reader.from_wire, view.pods):
        problems += pod.problems
        refusals += (f"pod/{pod.key}: Koordinator's webhook refuses it: {why}" for why in admission.refusals(pod))
    return refusals


WATCH_SECONDS = 0.5
BUSIEST = 5
"""Processes that are named; the others are counted."""


class Finding(msgspec.Struct, frozen=True):
    """An answer. NO in capitals: the agent cannot work without it."""

    what: str
    answer: str
    """yes, no, part or NO."""
    detail: str
    do: str = ""


def findings(args: argparse.Namespace, settings: Settings) -> Iterator[Finding]:
    """Every answer about the machine that the options name, also where one of them is NO. Reads only."""
    if args.sandbox:
        with contextlib.closing(machines.machine(args, settings)) as machine:
            yield from _answers(machine.host.files, settings)
            yield _cores(machine.host.cookies.missing())
            yield from _of_cluster(lambda: machine.cluster, machine.host.files, settings)
        return
    files = machines.files(args)
    yield from _answers(files, settings, own=not args.recorded)
    yield _cores(core_scheduling.missing(bundle.core_scheduling(files)))
    yield from _of_cluster(
        lambda: machines.cluster(args, settings, files, RealClock()), files, settings, own=not args.recorded
    )


def _answers(files: Files, settings: Settings, *, own: bool = False) -> Iterator[Finding]:
    """`own`: it is this machine, with its users, and none emulated or recorded."""
    yield _cgroups(files, settings.agent.kubepods)
    yield from _machine(files)
    yield _resctrl(bundle.resctrl(files))
    yield _pressure(files)
    if own:
        yield _waits(files)
        yield scheduler(files)
        yield _nri(settings)
    yield from writable(files, uid=os.geteuid() if own else 0)


def _of_cluster(
    open_cluster: Callable[[], Cluster], files: Files, settings: Settings, *, own: bool = False
) -> Iterator[Finding]:
    """Ask the cluster about this machine; that it cannot be asked is an answer too."""
    try:
        cluster = open_cluster()
        view = cluster.view()
    except InputError as error:
        yield from (Finding("cluster", "NO", f"{p.field}: {p.why}", p.do) for p in error.problems)
        return
    except (KoordliteError, OSError) as error:
        yield Finding("cluster", "NO", str(error), "check the API server's address and credentials")
        return
    try:
        if view.node is None:
            yield Finding("Node object", "NO", "not found", "check --node and the folder named by --cluster")
        else:
            yield Finding("Node object", "yes", "found")
            wrong = machines.contradictions(nodes.from_wire(view.node), files)
            yield from (Finding("Node capacity", "no", f"{p.field} is {p.value}: {p.why}", p.do) for p in wrong)
        yield from _kubelet(view.kubelet)
        yield from (Finding("input", "no", str(problem)) for problem in view.problems)
        yield from _devices(view, cluster.api if isinstance(cluster, KubeCluster) else None)
        if own:
            rows = processes.watch(WATCH_SECONDS, time.sleep)
            yield from beside_pods(rows, _reserved(view, files), settings.agent.kubepods)
    finally:
        if isinstance(cluster, KubeCluster):
            cluster.stop()


def _cgroups(files: Files, kubepods: str) -> Finding:
    try:
        layout = Cgroups.detect(files, kubepods=kubepods).layout
    except HardwareAbsent as absent:
        return Finding(absent.feature, "NO", absent.why, "mount cgroups, or name kubelet's group with --kubepods")
    return Finding(
        "cgroups", "yes", f"v{layout.version}, {layout.driver} driver, kubelet's groups in {layout.kubepods}"
    )


def _machine(files: Files) -> Iterator[Finding]:
    topology, cpu = sysfs.topology(files), procfs.processor(files)
    cores = len({c.core for c in topology.cpus})
    sockets = len({c.socket for c in topology.cpus})
    threads = "hyperthreads" if cores < len(topology.cpus) else "no hyperthreads"
    detail = f"{len(topology.cpus)} CPUs, {cores} cores, {sockets} sockets, {threads}; {cpu.model or 'model unknown'}"
    yield Finding("processors", "yes", detail)
    sizes = ", ".join(f"{node.id}: {node.cpus or 'no CPUs'}" for node in topology.nodes)
    yield Finding("NUMA nodes", "yes" if len(topology.nodes) > 1 else "no", sizes)


def _resctrl(fs: ResctrlFS) -> Finding:
    facts = fs.read()
    if facts.absent:
        return Finding("resctrl", "no", facts.absent, "the resctrl strategy is skipped; everything else works")
    parts = [f"{name} {cap.cbm_mask.bit_length()} ways" for name, cap in facts.caches.items()]
    parts += [f"{name} up to {cap.maximum}{'' if cap.absolute else ' %'}" for name, cap in facts.bandwidths.items()]
    return Finding("resctrl", "yes" if "MB" in facts.bandwidths else "part", ", ".join(parts))


def _cores(missing: str) -> Finding:
    """Asked of the kernel about ourselves, which takes no right."""
    if missing:
        return Finding("core scheduling", "no", missing, "the strategy coreSched is skipped; everything else works")
    return Finding("core scheduling", "yes", "prctl(PR_SCHED_CORE); for other processes it takes SYS_PTRACE")


def _pressure(files: Files) -> Finding:
    try:
        files.read("/proc/pressure/cpu")
    except OSError as error:
        return Finding("pressure (PSI)", "no", error.strerror or "", "boot with psi=1 for quicker reactions")
    return Finding("pressure (PSI)", "yes", "/proc/pressure/cpu")


def _waits(files: Files) -> Finding:
    """A kernel that does not count shows zeros, also of this process."""
    what = "CPU waits by thread"
    do = "boot a kernel with CONFIG_SCHED_INFO; guided else keeps to the formula unless each service has an objective"
    if (procfs.run_delay(files, os.getpid()) or (0, 0))[0]:
        return Finding(what, "yes", "/proc/TID/schedstat")
    return Finding(what, "no", "/proc/TID/schedstat is missing or counts nothing", do)


def scheduler(files: Files) -> Finding:
    """The kernel's scheduler and the policy that goes with it: EEVDF since 6.6, CFS before."""
    what, about_idle = "CPU scheduler", "cpuIdentity's cpu.idle ranks best-effort pods among each other only"
    try:
        release = files.read("/proc/sys/kernel/osrelease").decode().strip()
    except OSError as error:
        return Finding(what, "part", f"its kernel is not known: {error.strerror}")
    version = re.match(r"(\d+)\.(\d+)", release)
    if version and (int(version[1]), int(version[2])) >= (6, 6):
        do = "cpuSuppressPolicy guided lets the weights arbitrate; cfsQuota where use has to stay below the threshold"
        return Finding(what, "yes", f"EEVDF, kernel {release}; {about_idle}", do)
    do = "no figures of ours: compare guided with cfsQuota on a node of yours, the service's latency beside batch work"
    return Finding(what, "part", f"CFS, kernel {release}: it preempts later than EEVDF; {about_idle}", do)


def _nri(settings: Settings) -> Finding:
    """Check the socket alone: a plugin that connects and says nothing would keep others waiting."""
    what, path = "NRI", settings.agent.nri_socket
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError as error:
        return Finding(what, "no", f"{path}: {error.strerror}", _SWITCH_ON)
    if not is_socket:
        return Finding(what, "no", f"{path} is no socket", _SWITCH_ON)
    off = settings.agent.nri == "off"
    do = "agent.nri: auto sets values before a container's first process runs" if off else ""
    return Finding(what, "yes", f"{path}; agent.nri is {settings.agent.nri}", do)


def writable(files: Files, *, uid: int) -> Iterator[Finding]:
    """Check that the user with this number could write limits: by the mount options, never by a write."""
    points = {mount.point: mount for mount in procfs.mounts(files) if mount.type in ("cgroup", "cgroup2")}
    read_only = sorted(point for point, mount in points.items() if "ro" in mount.options)
    if read_only:
        yield Finding("writable cgroups", "no", f"read-only: {', '.join(read_only)}", "mount them rw to enforce")
    elif points and uid:
        yield Finding("writable cgroups", "no", f"mounted rw, but not for user {uid}", "enforce and restore as root")
    elif points:
        yield Finding("writable cgroups", "yes", ", ".join(sorted(points)))


def _kubelet(kubelet: Kubelet) -> Iterator[Finding]:
    if not kubelet.cpu_manager_policy:
        yield Finding("kubelet's policies", "part", "not known", "pods are treated as under cpuManagerPolicy none")
        return
    detail = f"cpuManagerPolicy {kubelet.cpu_manager_policy}, topologyManagerPolicy {kubelet.topology_manager_policy}"
    yield Finding("kubelet's policies", "yes", detail)
    if kubelet.cpu_manager_policy == "static":
        owned = f"{len(kubelet.pod_cpus)} pods hold CPUs exclusively; kubelet's reserved CPUs: {kubelet.reserved_cpus}"
        yield Finding("other writer of cpusets", "yes", owned, "containers outside besteffort are left to kubelet")


def _reserved(view: ClusterView, files: Files) -> CPUSet:
    """CPUs kept for processes outside of pods, by the Node's annotation or else by kubelet."""
    node = nodes.from_wire(view.node) if view.node is not None else None
    try:
        written = nodes.parse_reservation(node.annotations.get(keys.RESERVATION, ""), node.name) if node else None
    except InputError:
        written = None  # `check-config` names the mistake.
    resolved = reservation.resolve(written=written, cpus=sysfs.topology(files).cpus)
    return resolved.cpus or view.kubelet.reserved_cpus


def beside_pods(rows: Sequence[HostProcess], reserved: CPUSet, kubepods: str) -> Iterator[Finding]:
    """Tell who uses CPU outside of pods, and who runs on the wrong side of the reserved CPUs. `rows`: the busiest
    first; `kubepods`: kubelet's group, by any driver."""
    name = (kubepods or "kubepods").strip("/").removesuffix(".slice")
    pods = [row for row in rows if row.group.lstrip("/").startswith((f"{name}/", f"{name}.slice/"))]
    system = [row for row in rows if row not in pods]
    used = sum(row.used_milli for row in system)
    busy = [f"{_named(row)} {cores(row.used_milli)}" for row in system[:BUSIEST] if row.used_milli]
    yield Finding(
        "processes outside of pods", "yes", f"{len(system)} use {cores(used)} CPUs: {', '.join(busy) or 'all idle'}"
    )
    if not reserved:
        return
    outside = [row for row in system if row.cpus - reserved]
    if outside:
        detail = f"{len(outside)} of {len(system)} may leave them: {', '.join(map(_named, outside[:BUSIEST]))}"
        do = f"AllowedCPUs={reserved} in system.slice, or CPUAffinity={reserved} in system.conf of systemd"
        yield Finding(f"reserved CPUs {reserved}: processes outside of pods", "part", detail, do)
    inside = [row for row in pods if row.cpus & reserved]
    if inside:
        detail = f"{len(inside)} may use them: {', '.join(map(_named, inside[:BUSIEST]))}"
        do = "koordlite explain cpus names the pods; strategy cpusetPools keeps them off"
        yield Finding(f"reserved CPUs {reserved}: processes of pods", "no", detail, do)


def _named(row: HostProcess) -> str:
    return f"{printable.one_line(row.name)} (pid {row.pid}, since {times.show(row.started_at)})"


def _devices(view: ClusterView, api: Api | None) -> Iterator[Finding]:
    """GPUs and NICs that Koordinator's scheduler hands out: koordlet reports them and gives them to containers."""
    named = sorted(
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in view.pods
        if keys.DEVICE_ALLOCATED in (pod.metadata.annotations or {})
    )
    if named:
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        yield Finding("devices of pods", "no", f"{keys.DEVICE_ALLOCATED}: {', '.join(named[:3])}{more}", _KEEP)
    if api is not None and view.node is not None:
        yield from device_object(api, view.node.metadata.name)


def device_object(api: Api, node: str) -> Iterator[Finding]:
    """Check that a device agent reports devices of the node; nothing where the cluster has no such kind, or no
    object. A server refuses an identity before it looks whether there is such a kind: then discovery is asked, which
    everybody may."""
    try:
        api.request("GET", f"{_DEVICES}/{node}")
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND and not (error.status == HTTPStatus.FORBIDDEN and _absent(api)):
            do = f"allow this identity to get devices.scheduling.koordinator.sh, or look: kubectl get device {node}"
            yield Finding("Device object", "part", f"not known: {error}", do)
    except ApiUnreachable as error:
        yield Finding("Device object", "part", f"not known: {error}", "check the API server")
    else:
        yield Finding("Device object", "no", "koordlet reports GPUs, NICs or FPGAs of this node there", _KEEP)


_SWITCH_ON = (
    "containerd 1.7: disable = false in [plugins.'io.containerd.nri.v1.nri'] of config.toml (containerd 2 has it on); "
    "CRI-O 1.26 and newer: enable_nri = true in [crio.nri]; restart it. In a pod: components/nri. Everything else works"
)


def _absent(api: Api) -> bool:
    try:
        kinds = api.request("GET", _DEVICES.rpartition("/")[0])
    except ApiError as error:
        return error.status == HTTPStatus.NOT_FOUND
    return b'"devices"' not in kinds.body


_DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
_KEEP = "keep koordlet on this node: koordlite neither reports devices nor hands them to containers"
