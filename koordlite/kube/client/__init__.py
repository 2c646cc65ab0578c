"""Requests to an API server: credentials, pages, leases, reviews."""
