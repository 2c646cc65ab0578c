"""A flight record judged again: with the recorded settings, which must give the same decisions, or with others."""
