"""The page with the documents of a shard: the choice of documents, the facts of each, and their HTML."""
