"""Drawn data for the demo and the tests: scenes with captions, prose, documents, shards. It needs no network."""
