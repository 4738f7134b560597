"""Reports on one shard and on the data set, and what they share: the facts of shards, scores, texts, templates."""
