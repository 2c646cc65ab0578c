"""koordlite, a co-location agent for Kubernetes nodes that speaks Koordinator's protocol."""

__version__ = "0.1.0"
