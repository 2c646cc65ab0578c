"""A simulated cluster for the scheduler's side: emulated kubelets, an API server's watches, and a small kube-scheduler.

Time is that of an event queue and chance comes from a seed, so a run is the same every time. Kubelets admit by
`koordlite.numa.kubelet`, the same rules that the vectors of the real one hold. The scheduler does what recordings of
kube-scheduler 1.36 with an extender show.
"""
