"""Common parts of strategies: questions to a picture, and decisions of one form. No strategy itself."""
