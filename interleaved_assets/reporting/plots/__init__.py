"""Plots of scores and drops: as SVG text for a shard, and by matplotlib for the report on the data set."""
