"""The fsspec filesystem of a path, and the conversion of its exceptions to storage errors with advice."""

import contextlib
import errno
import gzip
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fsspec.core import split_protocol, url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import get_filesystem_class
from fsspec.spec import AbstractFileSystem

from interleaved_assets.model.errors import (
    InterleavedError,
    MissingDependency,
    OptionError,
    StorageError,
    StorageUnavailable,
)
from interleaved_assets.model.shown import has_user, without_credentials

StorageOptions = Mapping[str, Any] | None
"""fsspec options of a remote filesystem (``key``, ``secret``, ``endpoint_url``, …); None: from the environment."""

_LOCAL_PREFIXES: Final = ("file://", "local://")
# Schemes of fsspec that wrap another filesystem, as in zip://a.tar::s3://bucket/b.zip.
_LAID_OVER: Final = frozenset(
    {"zip", "tar", "libarchive", "simplecache", "filecache", "blockcache", "cached", "dir", "reference"}
)

_S3_TRIES: Final = 2
"""Times that s3fs makes a request and reads its answer, each with the retries of botocore (``AWS_MAX_ATTEMPTS``).

With its default of 5, it makes 125 requests of 15 s each to a server that does not answer.
"""

# Packages of storage clients, whose exceptions need not be OSErrors.
_CLIENTS: Final = frozenset({"botocore", "aiohttp", "gcsfs", "azure"})
_TRANSIENT_ERRNOS: Final = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT, errno.ECONNRESET, errno.EPIPE, getattr(errno, "EREMOTEIO", errno.EIO)}
)
_OF_A_FILE: Final = frozenset((
    None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG,
    errno.EINVAL, errno.EOVERFLOW, errno.ENXIO, errno.ENODEV,
))  # fmt: skip
"""Numbers of errors that say something about a file or its path. Others come from a disk, a mount or this process."""
# Classes of connection errors, time-outs and damaged answers in botocore, aiohttp and azure, by name to avoid importing
# them.
_TRANSIENT_CLASSES: Final = frozenset({
    "ConnectionError", "HTTPClientError", "ClientConnectionError", "ClientPayloadError", "FlexibleChecksumError",
    "ServiceRequestError", "ServiceResponseError", "IncompleteReadError",
})  # fmt: skip

_RENEW: Final = "The credentials have expired: renew them in storage_options or the environment."
_FULL: Final = "Free some space in the bucket, or raise its quota."
_CHECKSUM: Final = (
    "The data were damaged on their way; try again later. A server for which this happens each time sends the checksum "
    "of the whole object with a part of it: set AWS_RESPONSE_CHECKSUM_VALIDATION=when_required in the environment."
)
_OTHER_KEYS: Final = "Pass the right key and secret in storage_options or the environment."
# Advice by S3 error code, since s3fs maps many codes to the same exception. A HEAD response has only the HTTP status,
# which several codes share.
_S3_ADVICE: Final = {
    "ExpiredToken": _RENEW,
    "TokenRefreshRequired": _RENEW,
    "InvalidToken": _OTHER_KEYS,
    "InvalidAccessKeyId": _OTHER_KEYS,
    "SignatureDoesNotMatch": _OTHER_KEYS,
    "RequestTimeTooSkewed": "Set this machine's clock: S3 refuses requests that are more than 15 minutes off.",
    "NoSuchBucket": "Create the bucket, or check its name for a typo.",
    "QuotaExceeded": _FULL,  # Ceph; the next two are MinIO's
    "XMinioAdminBucketQuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL,
    "400": "S3 gives no reason here. Most often the credentials have expired: renew them in storage_options or the "
    "environment.",
    "403": "S3 gives no reason here. Grant access to it, pass valid credentials in storage_options or the environment, "
    "and see that this machine's clock is right.",
}
_ADVICE_BY_CLASS: Final = {
    FileNotFoundError: "Check the path, and the bucket where there is one, for a typo.",
    FileExistsError: "A file exists where a folder is needed: remove it, or write elsewhere.",
    NotADirectoryError: "A file exists where a folder is needed: remove it, or use another path.",
    IsADirectoryError: "A folder exists where a file is needed: remove it, or use another path.",
}
_ADVICE_BY_NUMBER: Final = {
    errno.ENOSPC: "Free some space, or write elsewhere.",
    errno.EDQUOT: "Free some space, or write elsewhere.",
    errno.EROFS: "The file system is mounted read-only: mount it for writing, or write elsewhere.",
    errno.ENAMETOOLONG: "The storage does not allow such a long name: shorten it.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
}


def is_local(uri: str) -> bool:
    """Return whether ``uri`` is a plain path or a ``file://`` URL."""
    return uri.startswith(_LOCAL_PREFIXES) or ("://" not in uri and not is_chain(uri))


def is_chain(uri: str) -> bool:
    """Return whether ``uri`` is a chain of filesystems (``zip://a.tar::s3://bucket/b.zip``), not a name with ``::``."""
    first, link, _ = uri.partition("::")
    return bool(link) and first.partition("://")[0] in _LAID_OVER


def local_path(uri: str) -> Path:
    """Return the absolute path of a local ``uri``; used both to check a path and to open it."""
    prefix = next((prefix for prefix in _LOCAL_PREFIXES if uri.startswith(prefix)), "")
    uri = uri.removeprefix(prefix)
    return Path(os.path.abspath(os.path.expanduser(uri)))  # noqa: PTH100, PTH111 - Path.resolve would follow links


def is_within(inner: str, outer: str) -> bool:
    """Return whether a folder or URL is in another one, or is it, also if a link or ``file://`` gives it two names."""
    # realpath, not Path.resolve: it never raises for a loop of links
    inner, outer = (os.path.realpath(local_path(uri)) if is_local(uri) else uri for uri in (inner, outer))
    return f"{inner}/".startswith(f"{outer.rstrip('/')}/")


def locator_path(uri: str) -> str:
    """Return the path or URL of a file as locators have it: absolute, and without credentials."""
    return str(local_path(uri)) if is_local(uri) else without_credentials(uri)


def filesystem(uri: str, storage_options: StorageOptions = None) -> tuple[AbstractFileSystem, str]:
    """Return the filesystem of ``uri`` and the path in it. ``storage_options`` are for remote filesystems only.

    Raises:
        OptionError: the scheme is unknown, or the URL contains a user or password.
        MissingDependency: the package for the scheme is not installed.
    """
    if is_local(uri):
        # fsspec would parse file:/a, local:/a and data:,a as URLs, not as paths
        return LocalFileSystem(), str(local_path(uri))
    if has_user(uri):
        raise OptionError(
            f"{without_credentials(uri)}: the URL has a user or password in it, and URLs are stored with the data and "
            "shown in messages. Pass them in storage_options, or in the environment."
        )
    options = dict(storage_options or {})
    try:
        if "::" not in uri or is_chain(uri):
            fs, path = url_to_fs(uri, **options)
        else:  # url_to_fs would parse the name as a chain
            kind = get_filesystem_class(split_protocol(uri)[0] or "file")
            fs, path = kind(**{**kind._get_kwargs_from_urls(uri), **options}), kind._strip_protocol(uri)
    except ImportError as error:
        raise MissingDependency(f"cannot reach {uri}: {error}") from error
    except ValueError as error:
        raise OptionError(f"cannot reach {uri}: {error}") from error
    if "s3" in fs.protocol:
        fs.retries = _S3_TRIES
    return fs, path


_S3_CODES_OF_A_FILE: Final = frozenset(("NoSuchBucket", "403"))
"""Codes with advice that may be of one file; the others are of credentials, the clock or a full store."""


def as_uri(place: str | os.PathLike[str], option: str) -> str:
    """Return a path or a URL as text.

    Raises:
        OptionError: ``place`` is neither text nor a path; the message names ``option``.
    """
    uri = os.fspath(place) if isinstance(place, os.PathLike) else place
    if not isinstance(uri, str):
        raise OptionError(f"{option} is a path or a URL, got {type(place).__name__}")
    return uri


def join(folder: str, name: str) -> str:
    """Return the path or URL of ``name`` below ``folder``, which is a path or a URL."""
    is_whole = not folder.strip("/") or folder.endswith("://")  # "s3:/name" would be a path
    return f"{folder}{name}" if is_whole else f"{folder.rstrip('/')}/{name}"


def file_info(uri: str, storage_options: StorageOptions = None) -> dict[str, Any] | None:
    """Return fsspec's info of the file or folder at ``uri``, None without one; cached listings are ignored."""
    with client_errors(uri, "look at"):
        fs, path = filesystem(uri, storage_options)
        fs.invalidate_cache()  # for a path, adlfs keeps the listing of its folder
        try:
            return dict(fs.info(path))
        except FileNotFoundError:
            return None


def exists(uri: str, storage_options: StorageOptions = None) -> bool:
    """Return whether a file or folder exists at ``uri``; cached listings are ignored."""
    return file_info(uri, storage_options) is not None  # fs.exists would return False when the storage fails


def is_file(uri: str, storage_options: StorageOptions = None) -> bool:
    """Return whether a file exists at ``uri``. In S3 this takes one request, where :func:`exists` takes two."""
    fs, path = filesystem(uri, storage_options)
    if "s3" not in fs.protocol:
        return exists(uri, storage_options)
    bucket, key, _ = fs.split_path(path)
    with client_errors(uri, "look at"):
        try:
            fs.call_s3("head_object", Bucket=bucket, Key=key)
        except FileNotFoundError:
            return False
    return True


def remove_file(uri: str, storage_options: StorageOptions = None) -> None:
    """Remove the file at ``uri``, if it exists."""
    with storage_errors(uri, "remove"):
        fs, path = filesystem(uri, storage_options)
        with contextlib.suppress(FileNotFoundError):  # also if another process has removed it meanwhile
            fs.rm_file(path)


@contextmanager
def storage_errors(uri: str, doing: str) -> Iterator[None]:
    """Turn storage exceptions in the block into :class:`StorageError`, which names ``uri`` and what to do."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:  # exceptions of clients are recognized by their packages, which need not be imported
        # adlfs raises RuntimeError from the client's exception; a plugin may raise it from an OSError of its own
        cause = error.__cause__ if type(error) is RuntimeError else None
        found = cause if cause is not None and _is_of_client(cause) else error
        if isinstance(found, OSError) or _is_of_client(found):
            raise as_storage_error(found, uri, doing) from found
        raise


def _is_of_client(error: BaseException) -> bool:
    return not _CLIENTS.isdisjoint(base.__module__.partition(".")[0] for base in type(error).__mro__)


@contextmanager
def client_errors(uri: str, doing: str) -> Iterator[None]:
    """Turn any exception in the block into :class:`StorageError`; the block must only call a filesystem.

    Third-party filesystems raise exceptions of any type, RuntimeError and TypeError included.
    """
    try:
        yield
    except (InterleavedError, MemoryError):
        raise
    except Exception as error:
        raise as_storage_error(error, uri, doing) from error


def is_storage_failure(error: BaseException) -> bool:
    """Return whether a disk or a storage failed.

    For damaged data, Arrow, bzip2 and fastwarc raise OSError itself without a number, and gzip its BadGzipFile.
    """
    if not isinstance(error, OSError) or isinstance(error, gzip.BadGzipFile):
        return False
    return type(error) is not OSError or error.errno is not None


def blames_no_file(error: BaseException) -> bool:
    """Return whether a disk, a server or this process failed, so that the error says nothing about the file."""
    return isinstance(error, StorageUnavailable) or any(
        (isinstance(cause, OSError) and cause.errno not in _OF_A_FILE)
        or s3_code(cause) in _S3_ADVICE.keys() - _S3_CODES_OF_A_FILE
        or "Credentials" in type(cause).__name__
        for cause in (error, error.__cause__)
        if cause is not None
    )


def as_storage_error(error: BaseException, uri: str, doing: str) -> StorageError:
    """Return the :class:`StorageError` for ``error``; :class:`StorageUnavailable` if a retry may succeed."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and cause is not None and (_is_transient(cause) or _is_refused(cause)):
        error = cause  # fsspec's http raises FileNotFoundError also if the host does not answer, or refuses
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    reason = " ".join(said.split())  # botocore's messages may have several lines
    if type(error).__name__ == "FileExpired":  # s3fs: the object has another ETag than when it was opened
        return StorageUnavailable(f"{uri} changed while it was read. Read it again once it is complete.")
    text = f"cannot {doing} {uri}: {reason.rstrip('.')}."
    # a full store answers with 507, and stays full
    if type(error).__name__ == "FlexibleChecksumError":
        return StorageUnavailable(f"{text} {_CHECKSUM}")
    if _is_transient(error) and s3_code(error) not in _S3_ADVICE:
        return StorageUnavailable(f"{text} The storage failed or did not respond; try again later.")
    return StorageError(f"{text} {_advice(error, uri)}")


def _advice(error: BaseException, uri: str) -> str:
    if (code := s3_code(error)) in _S3_ADVICE:
        return _S3_ADVICE[code]
    if _is_refused(error) or "Credentials" in type(error).__name__:
        if is_local(uri):
            return "Grant the user of this process access to it."
        return "Grant access to it, or pass credentials in storage_options or the environment."
    for kind, advice in _ADVICE_BY_CLASS.items():  # exceptions that fsspec itself raises often have no errno
        if isinstance(error, kind):
            return advice
    number = error.errno if isinstance(error, OSError) else None
    return _ADVICE_BY_NUMBER.get(number or 0, "Check the path, storage_options and the storage itself.")


def _is_refused(error: BaseException) -> bool:
    return isinstance(error, PermissionError) or _http_status(error) in (401, 403)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS:
        return True
    # azure raises its own exception from that of a broken answer
    if any(_TRANSIENT_CLASSES & {base.__name__ for base in type(one).__mro__} for one in (error, error.__cause__)):
        return True
    status = _http_status(error)
    return status is not None and (status >= 500 or status == 429)


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status in the exception of a client, each of which names it in its own way."""
    found = _s3_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    names = ("status", "code", "status_code")  # of aiohttp, gcsfs and azure
    for candidate in (found, *(getattr(error, name, None) for name in names)):
        if isinstance(candidate, int):
            return candidate
    return None


def s3_code(error: BaseException) -> str:
    """Return the error code in S3's response, such as ``AccessDenied``; empty if it has none."""
    return str(_s3_response(error).get("Error", {}).get("Code", ""))


def _s3_response(error: BaseException) -> dict[str, Any]:
    """Return S3's response from botocore's exception, which may be the cause of the exception that s3fs raises."""
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, dict):
            return response
    return {}
