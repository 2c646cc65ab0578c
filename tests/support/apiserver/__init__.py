"""A small Kubernetes API server over real HTTP, for tests.

    with ApiServer() as server:                       # a free port on the loopback address
        server.objects.load({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
        path.write_text(server.kubeconfig())          # for any client, kubectl included
        server.faults.add(Fault(verb="watch", cut_after_lines=3))
        server.requests                               # what was asked: verb, resource, subresource, namespace, user

It keeps objects with resourceVersions, answers lists, watches, patches, evictions and reviews by the rules of a real
server, and refuses what a real server refuses. Nothing schedules pods or runs them; `controllers=True` keeps the
status of disruption budgets and the taints of nodes that are not ready, and removes pods whose grace period is over, as
the controllers of a cluster do.
"""

from apiserver.clocks import ManualClock, RealClock
from apiserver.faults import Fault, Faults
from apiserver.server import ApiServer
from apiserver.users import User

__all__ = ["ApiServer", "Fault", "Faults", "ManualClock", "RealClock", "User"]
