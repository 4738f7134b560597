"""Lineage of a sample, a final tar or a column: where it comes from."""
