"""What several strategies share: questions to a picture, and decisions of one form. No strategy itself."""
