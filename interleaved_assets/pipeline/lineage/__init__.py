"""Lineage of a sample, a final tar or a column: the inputs and settings that it was made from."""
