"""The plan for people and programs: `text` for the terminal, `html` for a page, `document` for JSON."""
