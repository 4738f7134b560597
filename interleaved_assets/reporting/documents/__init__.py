"""The page with the documents of a shard: which are shown, what is known of each, and their HTML."""
