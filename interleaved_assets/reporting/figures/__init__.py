"""Figures that reports show: facts of shards, distributions, drops by reason."""
