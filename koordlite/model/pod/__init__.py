"""A pod: its requests, its class, and what its annotations say."""
