"""What people and machines read about a run: text, terminal, JSON, HTML, metrics. Values in, words out."""
