"""The parts of a picture of the node; `model.snapshot` puts them together."""
