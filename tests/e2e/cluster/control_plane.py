"""API server, controllers and scheduler: the real programs, or the tests' own server and scheduler."""

from __future__ import annotations

import contextlib
import pathlib
import random
from collections.abc import Iterator

import control_plane
import yaml
from apiserver import ApiServer

from koordlite.kube.client import access
from koordlite.kube.client.access import Api
from tests.e2e.cluster import stand_in

CONTROLLERS = (
    "node-lifecycle-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
)


class ControlPlane:
    """One that runs. `kubeconfig` is an administrator's."""

    def __init__(self, folder: pathlib.Path, kubeconfig: pathlib.Path, real: control_plane.ControlPlane | None) -> None:
        self.folder, self.kubeconfig, self._real = folder, kubeconfig, real
        self.is_real = real is not None

    def api(self) -> Api:
        """Access of its own, for one thread or more."""
        return access.connect(str(self.kubeconfig), None, user_agent="e2e-cluster")

    @contextlib.contextmanager
    def scheduler(self, configuration: str, name: str) -> Iterator[None]:
        """A scheduler with this KubeSchedulerConfiguration; `name` is that of its profile."""
        settings = yaml.safe_load(configuration)
        if self._real is None:
            with stand_in.running(self.api(), name, settings.get("extenders", []), random.Random(1)):
                yield
            return
        with self._real.scheduler(settings | {"leaderElection": {"leaderElect": False}}):
            yield


@contextlib.contextmanager
def started(folder: pathlib.Path, *, real: bool) -> Iterator[ControlPlane]:
    """A control plane without nodes. Skips the test where a real one is asked for and its programs are not here."""
    with contextlib.ExitStack() as stack:
        if real:
            plane = stack.enter_context(control_plane.control_plane(folder, controllers=CONTROLLERS))
            yield ControlPlane(folder, plane.kubeconfig(), plane)
        else:
            server = stack.enter_context(ApiServer(controllers=True, seed=1))
            kubeconfig = folder / "kubeconfig"
            kubeconfig.write_text(server.kubeconfig())
            yield ControlPlane(folder, kubeconfig, None)
