"""The cluster as one picture: `files` reads objects, `assemble` puts them together."""
