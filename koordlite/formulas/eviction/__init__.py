"""How much has to be released, and which pods go."""
