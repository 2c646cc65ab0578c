"""Koordinator's Reservation: who may take it, what it still has, when it ends, and how it is shown to a scheduler."""
