"""`koordlite kubelet plan`: what another CPU manager configuration would do to this node. Reads only."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import socket

import msgspec

from koordlite import commandline
from koordlite.cli import machine as machines
from koordlite.clock import RealClock
from koordlite.host import sysfs
from koordlite.kube.cluster import KubeCluster
from koordlite.kube.kubelet import configz
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import ConfigError, Problem
from koordlite.model.picture.kubelet import Kubelet
from koordlite.numa.kubelet import change, cpu_manager
from koordlite.numa.kubelet.cpu_manager import CPUState
from koordlite.ports import Cluster, Files
from koordlite.report import kubelet_plan


def kubelet(args: argparse.Namespace) -> int:
    """Print the plan. 1 when it refuses a pod."""
    settings = machines.settings(args)
    state_file = settings.cluster.cpu_manager_state
    if args.sandbox:
        machine = machines.machine(args, settings)
        with contextlib.closing(machine):
            planned = _plan(args, machine.host.files, machine.cluster, state_file)
    else:
        # Neither cgroups nor anything else of a running agent is needed.
        files = machines.files(args)
        cluster = machines.cluster(args, settings, files, RealClock())
        try:
            planned = _plan(args, files, cluster, state_file)
        finally:
            if isinstance(cluster, KubeCluster):
                cluster.stop()
    text = kubelet_plan.text(planned, state_file=state_file).removesuffix("\n")
    commandline.print_answer(args.output, "koordlite-kubelet-plan", {"plan": planned}, [text])
    return 1 if any(effect.outcome == "refused" for effect in planned.change.effects) else 0


def _plan(args: argparse.Namespace, files: Files, cluster: Cluster, state_file: str) -> kubelet_plan.KubeletPlan:
    machines.need_node(args, cluster)
    view, checkpoint = cluster.view(), _checkpoint(args, files, state_file)
    present = view.kubelet
    if checkpoint and not present.cpu_manager_policy:
        present = msgspec.structs.replace(present, cpu_manager_policy=checkpoint.policy)
    target = _target(args, present)
    try:
        effects = change.change(present, target, sysfs.topology(files), view.pods, checkpoint)
    except ValueError as error:
        do = "kubelet would not start with this; choose other values"
        raise ConfigError(Problem("command line", "kubelet plan", args.policy or "", str(error), do)) from None
    name = view.node.metadata.name if view.node else socket.gethostname()
    return kubelet_plan.plan(name, present, target, effects, state_file=state_file)


def _target(args: argparse.Namespace, present: Kubelet) -> change.Configuration:
    """Configuration by the options, and as kubelet has it at present where they say nothing."""
    policy: change.Policy = args.policy or ("static" if present.cpu_manager_policy == "static" else "none")
    reserved = present.listed_reserved_cpus
    if args.reserved_cpus is not None:
        try:
            reserved = CPUSet.parse(args.reserved_cpus)
        except ValueError as error:
            do = "write a list of CPUs, for example 0-1,16-17"
            raise ConfigError(Problem("command line", "--reserved-cpus", args.reserved_cpus, str(error), do)) from None
    if args.options is None:
        return change.Configuration(policy, reserved, present.cpu_manager_options if policy == "static" else {})
    options: dict[str, str] = {}
    for part in filter(None, args.options.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            do = f"write {name}=true"
            raise ConfigError(Problem("command line", "--options", args.options, f"{part} has no value", do))
        options[name.strip()] = value.strip()
    if policy == "none" and options:
        why = "the policy none takes no options"
        raise ConfigError(Problem("command line", "--options", args.options, why, "leave them out, or --policy static"))
    try:
        cpu_manager.CPUOptions.parse(options)
    except ValueError as error:
        do = f"write NAME=true|false with NAME one of {', '.join(cpu_manager.NAMES)}"
        raise ConfigError(Problem("command line", "--options", args.options, str(error), do)) from None
    return change.Configuration(policy, reserved, options)


def _checkpoint(args: argparse.Namespace, files: Files, state_file: str) -> change.Checkpoint | None:
    """Contents of kubelet's file; None where that is not to be seen, and its policy has to tell."""
    recorded = pathlib.Path(args.recorded[0], "var_lib_kubelet", "cpu_manager_state") if args.recorded else None
    try:
        raw = recorded.read_bytes() if recorded and recorded.exists() else files.read(state_file)
    except FileNotFoundError:
        return None
    state = configz.parse_cpu_manager_state(raw)
    if not state.policy:
        return None
    assigned = {own.uid: own.containers for own in state.pod_cpus}
    return change.Checkpoint(state.policy, CPUState(state.shared, assigned))
