"""The plan of `koordlite kubelet plan`: the change, the configuration that makes it, its commands and the way back."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from koordlite.model.picture.kubelet import Kubelet
from koordlite.numa.kubelet.change import Change, Configuration, Effect

CONFIG_FILE = "/var/lib/kubelet/config.yaml"
"""Path at which kubeadm puts it; the --config of kubelet's command line says where it is."""
_ALPHA = ("align-by-socket", "distribute-cpus-across-cores")
_BACKUP = ".before-koordlite-plan"


class KubeletPlan(msgspec.Struct, frozen=True):
    """Printed facts, as values."""

    node: str
    before: Configuration | None
    """None where kubelet's policy is not known."""
    after: Configuration
    change: Change
    configuration: str
    """The lines of KubeletConfiguration to set."""
    commands: tuple[str, ...]
    """Commands for a person: nothing here restarts kubelet by itself."""
    way_back: tuple[str, ...]
    notes: tuple[str, ...]


def plan(node: str, kubelet: Kubelet, after: Configuration, change: Change, *, state_file: str) -> KubeletPlan:
    """Add to a change what a person has to do for it. `state_file` is the CPU manager's checkpoint."""
    before = None
    if kubelet.cpu_manager_policy:
        static = kubelet.cpu_manager_policy == "static"
        before = Configuration(
            "static" if static else "none", kubelet.listed_reserved_cpus, kubelet.cpu_manager_options
        )
    named, effects = shlex.quote(node), change.effects
    leave = f"kubectl drain {named} --ignore-daemonsets"
    if any(effect.local_data and not effect.remains for effect in effects):
        leave += " --delete-emptydir-data"
    if any(effect.unowned for effect in effects):
        leave += " --force"
    stop = f"kubectl cordon {named}", leave, "systemctl stop kubelet"
    start = (
        "systemctl start kubelet",
        "journalctl -u kubelet --since -2min | grep -i -e 'cpu manager' -e cpumanager",
        f"kubectl wait --for=condition=Ready node/{named} --timeout=2m",
        f"kubectl uncordon {named}",
    )
    # After a drain nobody needs what the checkpoint says, and kubelet makes a new one.
    there = (
        f"cp -a {CONFIG_FILE} {CONFIG_FILE}{_BACKUP}",
        f"mv {state_file} {state_file}{_BACKUP}",
        f"# set the lines above in {CONFIG_FILE}",
    )
    back = f"cp -a {CONFIG_FILE}{_BACKUP} {CONFIG_FILE}", f"rm -f {state_file}"
    return KubeletPlan(
        node,
        before,
        after,
        change,
        configuration(after),
        (*stop, *there, *start),
        (*stop, *back, *start),
        tuple(_notes(kubelet, after, effects)),
    )


def configuration(after: Configuration) -> str:
    """The lines of KubeletConfiguration that are to be set."""
    lines = ["apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration"]
    lines.append(f"cpuManagerPolicy: {after.policy}")
    if after.policy == "static" and after.options:
        lines.append("cpuManagerPolicyOptions:")
        lines += [f'  {name}: "{value}"' for name, value in sorted(after.options.items())]
    else:
        lines.append("cpuManagerPolicyOptions: {}")
    if after.reserved:
        lines.append(f'reservedSystemCPUs: "{after.reserved}"')
    if after.policy == "static" and any(name in after.options for name in _ALPHA):
        lines += ["featureGates:", "  CPUManagerPolicyAlphaOptions: true"]
    return "\n".join(lines) + "\n"


def _notes(kubelet: Kubelet, after: Configuration, effects: tuple[Effect, ...]) -> Iterator[str]:
    if not kubelet.cpu_manager_policy:
        yield "kubelet's present policy is not known: it is taken for none, and the way back for the copies made first"
    if after.reserved:
        yield (
            "reservedSystemCPUs takes the place of the CPU in systemReserved and kubeReserved; kubelet does not start "
            "with it beside systemReservedCgroup or kubeReservedCgroup"
        )
    if kubelet.memory_nodes or kubelet.devices:
        yield (
            "memory and devices that kubelet aligns are not part of this plan: with them a pod may be refused that "
            "is not refused here"
        )
    unowned = [effect.pod for effect in effects if effect.unowned]
    if unowned:
        yield f"nothing makes these pods again once they are drained: {', '.join(unowned)}"
    remains = [effect.pod for effect in effects if effect.remains and effect.outcome != "shared"]
    if remains:
        yield f"a drain leaves these where they are, and the restart changes them: {', '.join(remains)}"
    if after.policy == "static":
        yield (
            "under static, kubelet writes the CPU sets of all containers outside besteffort every 10 s: koordlite "
            "leaves these to it, and Koordinator's cpusets of LSE and LSR pods do not hold"
        )
    yield "PodDisruptionBudgets are not looked at: kubectl drain keeps them, and waits"


def text(plan: KubeletPlan, *, state_file: str) -> str:
    """The plan for people."""
    change = plan.change
    lines = [f"kubelet on {plan.node}: nothing is changed by this command", ""]
    present = _one_line(plan.before) if plan.before else "not known"
    lines += [f"  now    {present}", f"  then   {_one_line(plan.after)}", ""]
    lines.append(f"  reserved CPUs      {change.reserved or 'none'}")
    lines.append(f"  shared CPUs        {change.shared_before or 'none'} → {change.shared_after or 'none'}")
    milli = change.allocatable_milli_before, change.allocatable_milli_after
    lines += [f"  allocatable CPU    {milli[0] / 1000:g} → {milli[1] / 1000:g}", ""]
    lines.append("Each pod, if it is still on the node when kubelet restarts (in the order of admission):")
    width = max((len(effect.pod) for effect in change.effects), default=0)
    for effect in change.effects:
        cpus = f"  {effect.before or 'shared'} → {effect.after or 'shared'}" if effect.before or effect.after else ""
        refusal = f"  {effect.reason}: {effect.message}" if effect.outcome == "refused" else ""
        remains = f"  ({effect.remains}: a drain leaves it)" if effect.remains else ""
        lines.append(f"  {effect.pod:<{width}}  {effect.outcome}{refusal or cpus}{remains}")
    lines += [] if change.effects else ["  there is none"]
    lines += ["", "The state file:"]
    if change.obstacle:
        lines.append(f"  {state_file} is in the way; with it kubelet does not start:")
        lines.append(f"  {change.obstacle}")
    else:
        lines.append(f"  kubelet would take {state_file} over; after a drain it is not needed")
    lines += ["", "Drain order (least important first; kubectl drain itself keeps none):"]
    lines += [f"  {number}. {pod}" for number, pod in enumerate(change.drain, 1)] or ["  no pod leaves"]
    lines += ["", "Configuration:", *(f"  {line}" for line in plan.configuration.splitlines())]
    lines += ["", "Commands (kubectl from anywhere, the rest as root on the node):"]
    lines += [f"  {line}" for line in plan.commands]
    lines += ["", "How to go back:", *(f"  {line}" for line in plan.way_back)]
    lines += ["", "Mind:", *(f"  - {note}" for note in plan.notes)]
    return "\n".join(lines) + "\n"


def _one_line(config: Configuration) -> str:
    words = [f"cpuManagerPolicy {config.policy}"]
    words += [f"reservedSystemCPUs {config.reserved}"] if config.reserved else []
    return ", ".join([*words, *(f"{name}={value}" for name, value in sorted(config.options.items()))])
