"""The sources of measurements: koordlet's NodeMetric objects, the resource metrics API, Prometheus."""
