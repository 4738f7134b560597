"""Reports on one shard and on the data set, with their shared parts: facts of shards, scores, texts and templates."""
