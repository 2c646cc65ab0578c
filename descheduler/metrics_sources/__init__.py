"""Where measurements come from: koordlet's NodeMetric objects, the resource metrics API, Prometheus."""
