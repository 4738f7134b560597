"""The stages, what they store, and their order."""
