"""The undo journal."""
