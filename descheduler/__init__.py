"""The cluster side: evict pods that sit where they should not, or say what would be evicted and why."""
