"""A real containerd with a state of its own, and a stand-in for the kubelet that asks it by CRI to run pods.

`CONTAINERD_NRI` names a containerd with NRI (2.0 or newer), with its shim beside it; ctr and runc come from the path.
Images are made of this machine's own shell, pods use the host's network. All of it ends with the block.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any

from realnode.waiting import until

from koordlite.kube.kubelet import grpc_call
from koordlite.nri.protobuf import INT, MAP, STRING, declared, decode, encode, message, wire

CONTAINERD = os.environ.get("CONTAINERD_NRI", "")
MISSING = "CONTAINERD_NRI names no containerd with NRI" if not CONTAINERD else ""
IMAGE = "docker.io/library/koordlite-shell:1"
LONG_SECONDS = 60.0
_STRINGS = dataclasses.replace(STRING, repeated=True)
_NODE_NAMESPACE = 2


@declared
class Metadata:
    name: str = wire(1, STRING)
    uid: str = wire(2, STRING)
    namespace: str = wire(3, STRING)
    attempt: int = wire(4, INT)


@declared
class NamespaceOption:
    network: int = wire(1, INT)


@declared
class SandboxSecurity:
    namespace_options: NamespaceOption | None = wire(1, message(lambda: NamespaceOption))


@declared
class LinuxSandbox:
    cgroup_parent: str = wire(1, STRING)
    security_context: SandboxSecurity | None = wire(2, message(lambda: SandboxSecurity))


@declared
class SandboxConfig:
    metadata: Metadata | None = wire(1, message(lambda: Metadata))
    log_directory: str = wire(3, STRING)
    labels: Mapping[str, str] = wire(6, MAP)
    annotations: Mapping[str, str] = wire(7, MAP)
    linux: LinuxSandbox | None = wire(8, message(lambda: LinuxSandbox))


@declared
class RunPodSandboxRequest:
    config: SandboxConfig | None = wire(1, message(lambda: SandboxConfig))


@declared
class ContainerMetadata:
    name: str = wire(1, STRING)


@declared
class ImageSpec:
    image: str = wire(1, STRING)


@declared
class ContainerResources:
    cpu_period: int = wire(1, INT)
    cpu_quota: int = wire(2, INT)
    cpu_shares: int = wire(3, INT)
    memory_limit: int = wire(4, INT)
    oom_score_adj: int = wire(5, INT)


@declared
class ContainerSecurity:
    namespace_options: NamespaceOption | None = wire(3, message(lambda: NamespaceOption))


@declared
class LinuxContainerConfig:
    resources: ContainerResources | None = wire(1, message(lambda: ContainerResources))
    security_context: ContainerSecurity | None = wire(2, message(lambda: ContainerSecurity))


@declared
class Mount:
    container_path: str = wire(1, STRING)
    host_path: str = wire(2, STRING)


@declared
class ContainerConfig:
    metadata: ContainerMetadata | None = wire(1, message(lambda: ContainerMetadata))
    image: ImageSpec | None = wire(2, message(lambda: ImageSpec))
    command: tuple[str, ...] = wire(3, _STRINGS)
    mounts: tuple[Mount, ...] = wire(7, dataclasses.replace(message(lambda: Mount), repeated=True))
    log_path: str = wire(11, STRING)
    linux: LinuxContainerConfig | None = wire(15, message(lambda: LinuxContainerConfig))


@declared
class CreateContainerRequest:
    pod_sandbox_id: str = wire(1, STRING)
    config: ContainerConfig | None = wire(2, message(lambda: ContainerConfig))
    sandbox_config: SandboxConfig | None = wire(3, message(lambda: SandboxConfig))


@declared
class Named:
    """A request or an answer with one text: an id."""

    id: str = wire(1, STRING)


@declared
class UpdateRequest:
    container_id: str = wire(1, STRING)
    linux: ContainerResources | None = wire(2, message(lambda: ContainerResources))


class Containerd:
    """The running daemon, asked as a kubelet asks."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.nri_socket = folder, str(folder / "nri.sock")
        self._address = str(folder / "containerd.sock")
        (folder / "config.toml").write_text(
            f"""\
version = 3
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{self._address}"
[ttrpc]
  address = "{self._address}.ttrpc"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "native"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{folder}/cni/bin"]
    conf_dir = "{folder}/cni/conf"
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = "{self.nri_socket}"
  plugin_path = "{folder}/plugins"
  plugin_config_path = "{folder}/conf.d"
"""
        )
        self._log = (folder / "containerd.log").open("wb")
        path = f"{pathlib.Path(CONTAINERD).parent}:{os.environ['PATH']}"
        command = [CONTAINERD, "-c", str(folder / "config.toml")]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env={**os.environ, "PATH": path})
        self._sandboxes: list[str] = []

    def begin(self) -> None:
        """Wait until it answers, and give it the image."""
        until(self._answers, "containerd answers", seconds=LONG_SECONDS)
        archive = self.folder / "image.tar"
        archive.write_bytes(_archive())
        command = ["ctr", "-a", self._address, "-n", "k8s.io", "images", "import", "--local", "--snapshotter", "native"]
        subprocess.run([*command, str(archive)], check=True, capture_output=True)

    def run_pod(self, name: str, uid: str, parent: str, labels: Mapping[str, str]) -> tuple[str, SandboxConfig]:
        """A sandbox in the host's network; its id and what it was asked with."""
        config = SandboxConfig(
            metadata=Metadata(name=name, uid=uid, namespace="ns"),
            log_directory=str(self.folder / "logs"),
            labels=labels,
            linux=LinuxSandbox(
                cgroup_parent=f"/{parent}",
                security_context=SandboxSecurity(namespace_options=NamespaceOption(network=_NODE_NAMESPACE)),
            ),
        )
        sandbox = self._ask("RunPodSandbox", RunPodSandboxRequest(config=config))
        self._sandboxes.append(sandbox)
        return sandbox, config

    def create(self, sandbox: tuple[str, SandboxConfig], name: str, command: tuple[str, ...], **resources: int) -> str:
        """A container that is not started yet, with its termination log bound as kubelet does; its id."""
        assert sandbox[1].metadata
        log = self.folder / "pods" / sandbox[1].metadata.uid / "containers" / name / "0"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        config = ContainerConfig(
            metadata=ContainerMetadata(name=name),
            image=ImageSpec(image=IMAGE),
            command=command,
            mounts=(Mount(container_path="/dev/termination-log", host_path=str(log)),),
            log_path=f"{name}.log",
            linux=LinuxContainerConfig(
                resources=ContainerResources(**resources),
                security_context=ContainerSecurity(namespace_options=NamespaceOption(network=_NODE_NAMESPACE)),
            ),
        )
        request = CreateContainerRequest(pod_sandbox_id=sandbox[0], config=config, sandbox_config=sandbox[1])
        return self._ask("CreateContainer", request)

    def start(self, container: str) -> None:
        """Start it."""
        self._ask("StartContainer", Named(id=container))

    def update(self, container: str, **resources: int) -> None:
        """Change it, as kubelet's CPU manager and resizes in place do."""
        self._ask(
            "UpdateContainerResources", UpdateRequest(container_id=container, linux=ContainerResources(**resources))
        )

    def remove(self, container: str) -> None:
        """End and remove it."""
        self._ask("StopContainer", Named(id=container))
        self._ask("RemoveContainer", Named(id=container))

    @property
    def log(self) -> str:
        """What it has logged."""
        return (self.folder / "containerd.log").read_text()

    def close(self) -> None:
        """End all pods, and the daemon."""
        for sandbox in self._sandboxes:
            for method in ("StopPodSandbox", "RemovePodSandbox"):
                with contextlib.suppress(OSError):
                    self._ask(method, Named(id=sandbox))
        self._process.terminate()
        self._process.wait(LONG_SECONDS)
        self._log.close()
        for line in reversed(pathlib.Path("/proc/mounts").read_text().splitlines()):
            point = line.split(" ")[1]
            if point.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", point], check=False)

    def _ask(self, method: str, request: Any) -> str:
        return decode(Named, self._call(method, encode(request))).id

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self._call("Version"))
        return False

    def _call(self, method: str, request: bytes = b"") -> bytes:
        return grpc_call.call(self._address, f"/runtime.v1.RuntimeService/{method}", request, seconds=LONG_SECONDS)


def _archive() -> bytes:
    """An image for `docker load`: this machine's shell and sleep, with the libraries they name."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in ("sh", "sleep"):
            binary = shutil.which(name) or ""
            words = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout.split()
            for path in {word for word in words if word.startswith("/")}:
                if path.lstrip("/") not in tar.getnames():
                    tar.add(os.path.realpath(path), arcname=path.lstrip("/"))
            tar.add(os.path.realpath(binary), arcname=f"bin/{name}")
    raw = layer.getvalue()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/bin/sleep", "infinity"], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(raw).hexdigest()}"]},
        }
    ).encode()
    named = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": named, "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in (("layer.tar", raw), (named, config), ("manifest.json", manifest)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@contextlib.contextmanager
def running(folder: pathlib.Path) -> Iterator[Containerd]:
    """A containerd that ends with the block."""
    containerd = Containerd(folder)
    try:
        containerd.begin()
        yield containerd
    finally:
        containerd.close()
