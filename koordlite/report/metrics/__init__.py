"""Reports as Prometheus metrics."""
