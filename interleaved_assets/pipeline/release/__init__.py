"""Releases: which final tars with which hashes make up a data set, its card and index, and whether it is still so."""
