"""Ways to carry out a plan. Each takes an `EvictionPlan` and says what became of every eviction."""
