"""The report of one shard: counts, plots and contact sheets, stored once beside the outputs."""
