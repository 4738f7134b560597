"""Storage options in the settings: options by URL scheme, and the list of options without secrets."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from interleaved_assets.io.storage.filesystem import StorageOptions, is_chain, is_local

StorageOptionsByScheme = Mapping[str, Mapping[str, Any]]
"""fsspec options by URL scheme (``s3``, ``https``); other schemes have no options."""

# Options of s3fs, gcsfs, adlfs, http, sftp and their client libraries that never hold a secret. Other options may,
# headers for example.
# fmt: off
_PUBLIC: Final = frozenset({
    "endpoint_url", "endpoint", "region", "region_name", "location", "default_location", "project",
    "account_name", "account_host", "host", "port", "username", "user", "profile", "anon", "requester_pays",
    "use_ssl", "verify", "version_aware", "version_id", "cache_regions", "consistency", "access",
    "default_block_size", "default_cache_type", "default_fill_cache", "block_size", "cache_type",
    "max_concurrency", "batch_size", "fixed_upload_size", "use_listings_cache", "listings_expiry_time",
    "max_paths", "skip_instance_cache", "simple_links", "same_scheme", "encoded", "trust_env", "look_for_keys",
    "allow_agent", "timeout", "requests_timeout", "connect_timeout", "read_timeout", "max_pool_connections",
    "max_attempts", "total_max_attempts", "mode", "retry_mode", "tcp_keepalive", "signature_version",
    "addressing_style", "payload_signing_enabled", "use_accelerate_endpoint", "use_dualstack_endpoint",
    "us_east_1_regional_endpoint", "parameter_validation", "request_checksum_calculation",
    "response_checksum_validation", "ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled", "StorageClass",
    "ACL", "RequestPayer", "ChecksumAlgorithm",
})
# fmt: on
_TABLES: Final = frozenset({"client_kwargs", "config_kwargs", "s3_additional_kwargs", "retries", "s3"})
_PUBLIC_TOKENS: Final = (None, "anon", "cloud", "google_default")
"""Values of the gcsfs option ``token`` that are not secrets."""

# schemes that name the same storage
SAME_STORAGE: Final = {"s3a": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}


def find_unlisted(options: Mapping[str, Any], prefix: str = "") -> str | None:
    """Return the name of the first option that may hold a secret, such as ``client_kwargs.headers``; None without one.

    Tables of client options are searched too; any other value must be a single value.
    """
    for name, value in options.items():
        if name == "token" and value in _PUBLIC_TOKENS:
            continue
        if name in _TABLES and isinstance(value, Mapping):
            if (found := find_unlisted(value, f"{prefix}{name}.")) is not None:
                return found
        elif name not in _PUBLIC or not isinstance(value, str | int | float | bool | None):
            return f"{prefix}{name}"
    return None


def by_scheme(options: Mapping[str, Any], uris: Iterable[str]) -> StorageOptionsByScheme:
    """Return ``options`` for each scheme of ``uris``; local paths have no options."""
    return {_scheme(uri): options for uri in uris if not is_local(uri)}


def options_of(uri: str, options: StorageOptionsByScheme | None) -> StorageOptions:
    """Return the options for the scheme of ``uri``; for a chain, of its last link."""
    return None if options is None or is_local(uri) else options.get(_scheme(uri))


def _scheme(uri: str) -> str:
    scheme = (uri.rpartition("::")[2] if is_chain(uri) else uri).partition("://")[0].lower()
    return SAME_STORAGE.get(scheme, scheme)
