"""A flight record judged again: with the settings of then, which must give the same, or with others."""
