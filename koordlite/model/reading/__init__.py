"""Reading other people's JSON as Go does, and our own YAML strictly."""
