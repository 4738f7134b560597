"""What the demo and the tests draw for themselves: scenes with captions, prose, documents, shards. Needs no network."""
