"""Pods that move with a place reserved for them first: Koordinator's PodMigrationJob and Reservation, as pure rules."""
