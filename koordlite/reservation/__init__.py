"""Koordinator's Reservations on a stock scheduler: placeholder pods, hand-over to owners, status, and clean-up."""
