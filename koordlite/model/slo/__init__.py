"""The ConfigMap `slo-controller-config`: from its documents to what holds on one node."""
