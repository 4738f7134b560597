"""The stages, their outputs, and their order."""
