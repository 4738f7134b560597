"""Pages of a listing, in whatever form the server writes them: every object is listed, or the listing fails."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from interleaved_assets.io.storage import find_files_below, list_stamps
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_gate import Refusal, s3_gate
from interleaved_assets_tests.s3_requests import counted_requests

NAMES = ["a&b", "d/1", "d/2", "é"]


@pytest.fixture
def folder(s3_server: S3Server, bucket: str) -> str:
    for name in NAMES:
        s3_server.fs.pipe(f"{bucket}/folder/{name}", name.encode())
    return f"{bucket}/folder"


@contextmanager
def pages(server: S3Server, event: str, see: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """``see`` is given each answer to a listing before it is parsed, and may change it."""

    def handler(response_dict: dict[str, Any], **_: Any) -> None:
        see(response_dict)

    events = server.fs.s3.meta.events
    events.register_first(event, handler, unique_id="test-pages")
    try:
        yield
    finally:
        events.unregister(event, unique_id="test-pages")


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda page: page.replace(b"&#34;", b"&quot;"),
        lambda page: page.replace(b"d%2F1", b"d%2&#70;1").replace(b"d/1", b"d&#47;1"),
        lambda page: page.replace(b"<Key>", b"<Key><![CDATA[").replace(b"</Key>", b"]]></Key>"),
        lambda page: page.replace(b"<Contents>", b"<!-- <Contents><Key>no</Key></Contents> --><Contents>"),
        lambda page: page.replace(b"<Contents>", b'<Contents a="1">', 1),
        lambda page: page.replace(b"<Key>", b'<Key a="1">', 1),
        lambda page: page.replace(b"><", b">\n  <"),
        lambda page: page.replace(b"><", b">\r\n<"),
        lambda page: page.replace(b"</Contents><", b"</Contents><Other>1</Other><"),
        lambda page: page.replace(b"<Contents>", b"<Contents><Owner><ID>1</ID></Owner>"),
    ],
)
def test_a_page_in_another_form_lists_the_same(
    s3_server: S3Server, folder: str, rewrite: Callable[[bytes], bytes]
) -> None:
    expected = list_stamps(folder, s3_server.storage_options)
    assert list(expected) == NAMES
    changed = []

    def change(answer: dict[str, Any]) -> None:
        before, answer["body"] = answer["body"], rewrite(answer["body"])
        changed.append(answer["body"] != before)

    with pages(s3_server, "before-parse.*.ListObjectsV2", change):
        assert list_stamps(folder, s3_server.storage_options) == expected
    assert changed == [True]


def test_a_page_that_was_cut_off_is_asked_for_again(s3_server: S3Server, folder: str) -> None:
    expected = list_stamps(folder, s3_server.storage_options)
    cuts = [-1, 500]

    def cut(answer: dict[str, Any]) -> None:
        if cuts:
            answer["body"] = answer["body"][: cuts.pop()]

    with pages(s3_server, "before-parse.*.ListObjectsV2", cut), counted_requests() as requests:
        assert list_stamps(folder, s3_server.storage_options) == expected
    assert len(requests) == 3


def test_an_error_with_the_status_200_is_not_an_empty_folder(s3_server: S3Server, folder: str) -> None:
    with s3_gate(s3_server) as gate:
        gate.refuses = lambda method, path: None if gate.refused else Refusal(200, "InternalError", "Try again.")
        assert list(list_stamps(folder, gate.storage_options)) == NAMES
        assert len(gate.refused) == 1


def test_botocore_parses_no_objects(s3_server: S3Server, folder: str) -> None:
    seen: list[bytes] = []
    with pages(s3_server, "before-parse.s3.*", lambda answer: seen.append(answer["body"])):
        found = find_files_below(s3_server.fs, folder.removeprefix("s3://"))
    assert len(found.infos) == len(NAMES)
    assert [b"ListBucketResult" in page and b"Contents" not in page for page in seen] == [True]
