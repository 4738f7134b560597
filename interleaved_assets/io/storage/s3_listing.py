"""List a folder of a bucket page by page, from any name on.

botocore needs 40 to 100 µs for each listed object, most of it for times that nobody reads here. The objects of these
pages are therefore parsed here, by a handler of botocore's event ``before-parse``, which is told by a context variable
that a request is one of these. They are cut out of the text: a tree of XML has six elements for each object, and with
them the garbage collector takes longer than the parser. A page in another form than that of S3 is left to botocore.
"""

import contextvars
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import compress
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_plus

from fsspec.spec import AbstractFileSystem

from interleaved_assets.model.errors import OptionError

PAGE_OBJECTS: Final = 1000
"""Objects on a page at most: S3's own limit."""

# botocore's own handler of before-parse.s3.* parses a page a first time, to see whether it is an error. Handlers of a
# wildcard come before those of s3, and leave it a page without objects.
_EVENT: Final = "before-parse.*.ListObjectsV2"
_HANDLER: Final = "interleaved-listing"
_PROPERTIES: Final = ("Key", "ETag", "Size", "LastModified")
_OBJECTS: Final = "interleaved-objects"
"""The key of the parsed answer with what :func:`_cut_out` found."""
_is_ours: contextvars.ContextVar[bool] = contextvars.ContextVar("interleaved_listing", default=False)


class Page(NamedTuple):
    """A part of a listing, in the order of the server, with a list of each property.

    An object for each listed one would be another thing for the garbage collector to go through.
    """

    names: list[str]
    """Relative to the folder."""
    etags: list[str]
    """With their quotes."""
    sizes: list[int]
    """In bytes."""
    modified: list[object]
    """Times of the uploads, as text in ISO format or as ``datetime``."""
    next_page: str
    """Token of the next page; empty if this is the last one."""


def is_s3(fs: AbstractFileSystem) -> bool:
    """Whether ``fs`` is the filesystem of ``s3fs`` without versions, whose folders :func:`list_page` lists."""
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    return "s3" in protocols and hasattr(fs, "call_s3") and not getattr(fs, "version_aware", False)


def list_page(fs: Any, folder: str, *, token: str = "", after: str = "", at_most: int | None = None) -> Page:
    """The first objects below ``folder``, or the first of the next page, in one request.

    Args:
        fs: the filesystem, for which :func:`is_s3` holds.
        folder: path in it, with the bucket.
        token: ``next_page`` of the page before.
        after: name relative to ``folder``, after which the page begins; S3 orders names by their bytes in UTF-8.
        at_most: number of objects, 1 to :data:`PAGE_OBJECTS`, which is the default.

    Raises:
        OptionError: ``folder`` names no bucket.
    """
    bucket, key, _ = fs.split_path(folder)
    if not bucket:
        raise OptionError("the URL names no bucket: write s3://bucket/folder")
    prefix = f"{key.rstrip('/')}/" if key else ""
    start = {"ContinuationToken": token} if token else {"StartAfter": f"{prefix}{after}"} if after else {}
    # an event keeps one handler of a name, also of a client that was made anew with other credentials
    fs.s3.meta.events.register(_EVENT, _parse, unique_id=_HANDLER)
    reset = _is_ours.set(True)
    try:
        answer = fs.call_s3(
            "list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=at_most or PAGE_OBJECTS, **start, **fs.req_kw
        )
    finally:
        _is_ours.reset(reset)
    columns = answer.get(_OBJECTS)
    if columns is None:
        columns = [[each[name] for each in answer.get("Contents", ())] for name in _PROPERTIES]
    elif answer.get("EncodingType") == "url":  # which botocore asks for, and decodes in pages that it parses itself
        columns[0] = list(map(unquote_plus, columns[0]))
    kept = [not name.endswith("/") for name in columns[0]]  # some programs mark folders by empty objects
    if not all(kept):
        columns = [list(compress(column, kept)) for column in columns]
    names, etags, sizes, modified = columns
    next_page = answer["NextContinuationToken"] if answer.get("IsTruncated") else ""
    return Page([name.removeprefix(prefix) for name in names], etags, sizes, modified, next_page)


def list_pages(fs: Any, folder: str) -> Iterator[Page]:
    """All pages of ``folder``, each by :func:`list_page`."""
    token = ""
    while True:
        page = list_page(fs, folder, token=token)
        yield page
        token = page.next_page
        if not token:
            return


def list_s3_infos(fs: Any, folder: str) -> dict[str, dict[str, Any]]:
    """What ``fs.find(folder, detail=True)`` returns: by path, fsspec's info of each file below a folder.

    ``LastModified`` may be text in ISO format. :func:`is_s3` holds for the filesystem.
    """
    infos: dict[str, dict[str, Any]] = {}
    for page in list_pages(fs, folder):
        for below, etag, size, modified in zip(page.names, page.etags, page.sizes, page.modified, strict=True):
            name = f"{folder.rstrip('/')}/{below}"
            infos[name] = {"name": name, "size": size, "ETag": etag, "type": "file", "LastModified": modified}
    return infos


def _parse(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Take the objects out of the body of a listing before botocore parses the rest."""
    if not _is_ours.get() or response_dict["status_code"] != 200:
        return
    if (found := _cut_out(response_dict["body"])) is not None:
        customized_response_dict[_OBJECTS], response_dict["body"] = found


def _cut_out(body: bytes) -> tuple[list[list[Any]], bytes] | None:
    """The :data:`_PROPERTIES` of the objects on a page, a list for each, and the page without the objects.

    None if it is anything but the beginning of a ``ListBucketResult``, then its objects one right after another, and
    then its end: an error, which a server may send with the status 200, a page that was cut off, or another form.
    """
    try:
        head, *blocks = body.decode().split("<Contents>")
    except UnicodeDecodeError:
        return None
    # a comment or CDATA may hold what looks like an object, and XML reads "\r\n" as "\n"
    if "<ListBucketResult" not in head or not blocks or b"<!" in body or b"\r" in body:
        return None
    last, end, tail = blocks[-1].partition("</Contents>")
    if "</ListBucketResult>" not in tail or "<Contents" in f"{head}{tail}":  # such as one with an attribute
        return None
    blocks[-1] = f"{last}{end}"
    names, etags, sizes, modified = ([_text(block, name) for block in blocks] for name in _PROPERTIES)
    if not (all(names) and all(map(str.isdecimal, sizes)) and all(block.endswith("</Contents>") for block in blocks)):
        return None
    return [names, etags, list(map(int, sizes)), modified], f"{head}{tail}".encode()


def _text(block: str, tag: str) -> str:
    """The text of an element without attributes and elements in it; empty if there is none."""
    text = block.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    if "&" not in text:
        return text
    text = text.replace("&#34;", '"').replace("&quot;", '"')  # around every ETag
    return (ElementTree.fromstring(f"<a>{text}</a>").text or "") if "&" in text else text
