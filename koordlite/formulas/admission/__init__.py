"""Koordinator's webhook: its changes to pods, and its refusals."""
