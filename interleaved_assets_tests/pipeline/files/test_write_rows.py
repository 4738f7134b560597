"""Names of one file: inputs and outputs are compared by them."""

import pytest

from interleaved_assets.pipeline.files.write_rows import identity


@pytest.mark.parametrize("other", ["s3a://bucket/raw/a.tar", "S3://bucket/raw/a.tar", "s3://bucket/raw/a.tar/"])
def test_urls_of_one_object(other: str) -> None:
    assert identity("s3://bucket/raw/a.tar") == identity(other)


@pytest.mark.parametrize("other", ["s3://bucket/raw/b.tar", "gs://bucket/raw/a.tar", "s3://bucket//raw/a.tar"])
def test_urls_of_other_objects(other: str) -> None:
    assert identity("s3://bucket/raw/a.tar") != identity(other)
