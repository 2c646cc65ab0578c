"""Answers to `koordlite explain`."""
