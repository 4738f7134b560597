"""List a folder of a bucket page by page, from any name on.

botocore needs 40 to 100 µs for each listed object, most of it for times that nobody reads here. The objects of these
pages are therefore parsed here, by a handler of botocore's event ``before-parse``, which is told by a context variable
that a request is one of these.
"""

import contextvars
import xml.etree.ElementTree as ElementTree
from typing import Any, Final, NamedTuple

from fsspec.spec import AbstractFileSystem

from interleaved_assets.model.errors import OptionError

PAGE_OBJECTS: Final = 1000
"""Objects on a page at most: S3's own limit."""

_EVENT: Final = "before-parse.s3.ListObjectsV2"
_HANDLER: Final = "interleaved-listing"
_is_ours: contextvars.ContextVar[bool] = contextvars.ContextVar("interleaved_listing", default=False)


class Listed(NamedTuple):
    """An object in a listing: name relative to the folder, ETag with its quotes, size in bytes, and the
    time of its upload, as text in ISO format or a ``datetime``."""

    name: str
    etag: str
    size: int
    modified: object


class Page(NamedTuple):
    """A part of a listing, in the order of the server."""

    objects: list[Listed]
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
    # some programs mark folders by empty objects
    objects = [
        Listed(each["Key"].removeprefix(prefix), each["ETag"], each["Size"], each["LastModified"])
        for each in answer.get("Contents", ())
        if not each["Key"].endswith("/")
    ]
    return Page(objects, answer["NextContinuationToken"] if answer.get("IsTruncated") else "")


def list_s3_infos(fs: Any, folder: str) -> dict[str, dict[str, Any]]:
    """What ``fs.find(folder, detail=True)`` returns: by path, fsspec's info of each file below a folder.

    ``LastModified`` may be text in ISO format. :func:`is_s3` holds for the filesystem.
    """
    infos: dict[str, dict[str, Any]] = {}
    token = ""
    while True:
        page = list_page(fs, folder, token=token)
        for each in page.objects:
            name = f"{folder.rstrip('/')}/{each.name}"
            infos[name] = {"name": name, "size": each.size, "ETag": each.etag, "type": "file"}
            infos[name]["LastModified"] = each.modified
        token = page.next_page
        if not token:
            return infos


def _parse(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Take the objects out of the body of a listing before botocore parses the rest."""
    if not _is_ours.get() or response_dict["status_code"] != 200:
        return
    try:
        root = ElementTree.fromstring(response_dict["body"])
    except ElementTree.ParseError:
        return  # botocore reports it
    namespace = root.tag.removesuffix("ListBucketResult")
    objects: list[ElementTree.Element] = []
    rest: list[ElementTree.Element] = []
    for each in root:
        (objects if each.tag == f"{namespace}Contents" else rest).append(each)
    customized_response_dict["Contents"] = [
        {
            "Key": each.findtext(f"{namespace}Key", ""),
            "ETag": each.findtext(f"{namespace}ETag", ""),
            "Size": int(each.findtext(f"{namespace}Size", "0")),
            "LastModified": each.findtext(f"{namespace}LastModified", ""),
        }
        for each in objects
    ]
    root[:] = rest
    response_dict["body"] = ElementTree.tostring(root)
