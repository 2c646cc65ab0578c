"""The cluster side: evict misplaced pods, or report which ones would be evicted and why."""
