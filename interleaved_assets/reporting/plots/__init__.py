"""Plots of scores and drops as SVG text: one small picture for a shard, charts for the report on the data set."""
