"""What the process that the tests fork from imports, once: the stages of the chain, and what makes their shards."""

import pytest  # noqa: F401  imported by the modules whose functions are called
import s3fs  # noqa: F401

import interleaved_assets.io
import interleaved_assets.pipeline.stages.dag
import interleaved_assets.settings  # noqa: F401
import interleaved_assets_tests.documents  # noqa: F401
