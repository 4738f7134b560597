import pytest

from interleaved_assets.io.storage.options import by_scheme, options_of


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("s3://other/model.pt", {"endpoint_url": "http://s3"}),
        ("s3a://other/model.pt", {"endpoint_url": "http://s3"}),
        ("simplecache::s3://other/model.pt", {"endpoint_url": "http://s3"}),
        ("https://host/model.pt", None),
        ("gs://other/model.pt", None),
        ("/models/model.pt", None),
        ("file:///models/model.pt", None),
    ],
)
def test_options_are_for_the_scheme_of_the_roots(uri: str, found: object) -> None:
    options = by_scheme({"endpoint_url": "http://s3"}, ("s3://bucket/raw", "/out"))
    assert options_of(uri, options) == found
    assert options_of(uri, None) is None
