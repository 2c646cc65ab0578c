"""A cluster of emulated nodes under a control plane, and what becomes of pods there while processes of ours die.

The control plane is a real one where KUBEBUILDER_ASSETS names its programs, else the tests' own API server with a small
scheduler that asks extenders as kube-scheduler does. Nodes admit, refuse, run and report by kubelet's rules
(`tests/support/topocluster`), on the wall clock and over HTTP. The extender, its front and the Reservation controllers
are the product's own commands as processes, which scenarios kill, stop and slow down.

    control_plane   API server, controller manager and scheduler
    nodes           emulated kubelets that watch, admit, write statuses and report
    processes       the product's commands
    accounting      who holds which CPU, who was refused, who was bound without a promise
    scenarios       what happens; each returns numbers
"""
