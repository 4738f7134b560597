"""Curation of interleaved image-text shards: a plain library, and a Dagster project on top of it (``defs``)."""
