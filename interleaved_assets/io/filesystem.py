"""Which fsspec filesystem a path belongs to, and what its failures mean."""

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fsspec.core import url_to_fs
from fsspec.exceptions import FSTimeoutError
from fsspec.spec import AbstractFileSystem

from interleaved_assets.model.errors import MissingDependency, OptionError, StorageError, StorageUnavailable

StorageOptions = Mapping[str, Any] | None
"""What fsspec needs to reach a remote filesystem (``key``, ``secret``, ``endpoint_url``, …); None: the environment."""

_LOCAL_PREFIXES: Final = ("file://", "local://")

# Exceptions of storage clients that are no OSError, by the module they come from; a client that was never imported
# cannot have raised one.
_CLIENT_ERRORS: Final = {
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "aiohttp": ("ClientError",),
    "gcsfs.retry": ("HttpError",),
    "azure.core.exceptions": ("AzureError",),
}
_TRANSIENT_ERRNOS: Final = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT, errno.ECONNRESET, errno.EPIPE, getattr(errno, "EREMOTEIO", errno.EIO)}
)
# Base classes of lost connections and time-outs in botocore and aiohttp, by name, so that neither has to be imported.
_TRANSIENT_CLASSES: Final = frozenset(
    {"ConnectionError", "HTTPClientError", "ClientConnectionError", "ClientPayloadError"}
)


def is_local(uri: str) -> bool:
    """Whether ``uri`` is a plain path or a ``file://`` URL."""
    return uri.startswith(_LOCAL_PREFIXES) or ("://" not in uri and "::" not in uri)


def local_path(uri: str) -> Path:
    """The absolute path of a local ``uri``."""
    for prefix in _LOCAL_PREFIXES:
        uri = uri.removeprefix(prefix)
    return Path(os.path.abspath(os.path.expanduser(uri)))  # noqa: PTH100, PTH111 - Path.resolve would follow links


def filesystem(uri: str, storage_options: StorageOptions = None) -> tuple[AbstractFileSystem, str]:
    """The filesystem of ``uri`` and the path in it. ``storage_options`` are for remote filesystems only.

    Raises:
        OptionError: no filesystem is known for the scheme.
        MissingDependency: the package for the scheme is not installed.
    """
    options = {} if is_local(uri) else dict(storage_options or {})
    try:
        return url_to_fs(uri, **options)
    except ImportError as error:
        raise MissingDependency(f"cannot reach {uri}: {error}") from error
    except ValueError as error:
        raise OptionError(f"cannot reach {uri}: {error}") from error


def join(folder: str, name: str) -> str:
    """``name`` below ``folder``, whether a path or a URL."""
    return f"{folder.rstrip('/')}/{name}" if folder.strip("/") else f"{folder}{name}"


def exists(uri: str, storage_options: StorageOptions = None) -> bool:
    """Whether there is a file or folder at ``uri`` now, cached listings aside."""
    with storage_errors(uri, "look at"):
        fs, path = filesystem(uri, storage_options)
        fs.invalidate_cache(path)
        try:
            fs.info(path)  # not fs.exists, which takes a storage that fails for one that has no such file
        except FileNotFoundError:
            return False
        return True


@contextmanager
def storage_errors(uri: str, doing: str) -> Iterator[None]:
    """Turn what a filesystem raises in the block into a :class:`StorageError` that names ``uri`` and what to do."""
    try:
        yield
    except StorageError:
        raise
    except _storage_failures() as error:
        raise as_storage_error(error, uri, doing) from error


def as_storage_error(error: BaseException, uri: str, doing: str) -> StorageError:
    """The :class:`StorageError` for ``error``; :class:`StorageUnavailable` where another try may succeed."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    text = f"cannot {doing} {uri}: {reason}"
    if _is_transient(error):
        return StorageUnavailable(f"{text}. The storage did not answer as it should; try again later.")
    return StorageError(f"{text}. {_advice(error)}")


def _storage_failures() -> tuple[type[BaseException], ...]:
    found: list[type[BaseException]] = [OSError, FSTimeoutError]
    for module, names in _CLIENT_ERRORS.items():
        if module in sys.modules:
            found += [getattr(sys.modules[module], name) for name in names]
    return tuple(found)


def _advice(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "Check the path, and the bucket where there is one, for a typo."
    if isinstance(error, FileExistsError):
        return "A file stands where a folder is needed: remove it, or write elsewhere."
    if isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
        return "Grant access to it, or pass credentials in storage_options or the environment."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, or write elsewhere."
    return "Check the path, storage_options and the storage itself."


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS:
        return True
    if _TRANSIENT_CLASSES & {base.__name__ for base in type(error).__mro__}:
        return True
    status = _http_status(error)
    return status is not None and (status >= 500 or status == 429)


def _http_status(error: BaseException) -> int | None:
    """The HTTP status that a client's exception carries: aiohttp ``status``, gcsfs ``code``, botocore ``response``."""
    response = getattr(error, "response", None)
    found = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    for candidate in (found, getattr(error, "status", None), getattr(error, "code", None)):
        if isinstance(candidate, int):
            return candidate
    return None
