"""The scheduler's side: an extender of the stock kube-scheduler that knows NUMA nodes.

`judgement` is pure. `extender` answers the verbs without HTTP; `service` puts it behind a listener; `watches` keeps
what is known of the cluster.
"""
