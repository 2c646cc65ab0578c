"""What Koordinator's webhook does to pods, and which it refuses."""
