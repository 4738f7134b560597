"""Releases of a data set: its final tars with their hashes, its card and index, and the later verification."""
