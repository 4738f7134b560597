"""Plots, contact sheets, the report of one shard and the report on the data set."""
