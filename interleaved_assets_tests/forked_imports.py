"""What the process that the tests fork from imports, once: the stages of the chain, and what makes their shards."""

import _strptime  # noqa: F401  imported when the first time is read

import jinja2  # noqa: F401
import pandas as pd  # noqa: F401  pyarrow imports it with the first array that it makes of Python values
import pytest  # noqa: F401  imported by the modules whose functions are called
import s3fs  # noqa: F401

import interleaved_assets.io
import interleaved_assets.pipeline.run.many
import interleaved_assets.pipeline.stages.dag
import interleaved_assets.settings  # noqa: F401
import interleaved_assets_tests.documents  # noqa: F401
