"""Reports of a run for people and machines: text, terminal, JSON, HTML, metrics. Values in, words out."""
