"""Reading and writing shards: tar and Parquet, local and remote, atomic and deterministic."""
