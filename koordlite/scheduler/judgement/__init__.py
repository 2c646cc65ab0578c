"""Judgement: pods, nodes and what is reserved on them as values, and the verdicts. No I/O, no clock."""
