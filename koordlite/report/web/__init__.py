"""Answers of the agent over HTTP."""
