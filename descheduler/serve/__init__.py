"""The descheduler as a service: its loop, its HTTP answers, metrics and log lines."""
