"""Limits on members, documents, samples and shards, so that memory and time follow the options and not the input."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from interleaved_assets.io.storage import parse_size
from interleaved_assets.model.errors import OptionError


class TarLimits(NamedTuple):
    """The most that one member, document, sample and shard may take; beyond it, rows get an error.

    Attributes:
        max_member_bytes: a larger member is not read: ``member_too_large``.
        max_document_bytes: a larger JSON member is not parsed: ``document_too_large``. It is kept as it is.
        max_sample_bytes: images that would bring a sample above this are not read: ``sample_too_large``. A document
            that would take more when parsed and as rows is not parsed: ``document_too_large``.
        max_columns: a document that would bring a shard to more passthrough columns is not read:
            ``document_too_large``.
        max_unpacked_bytes: a compressed tar that unpacks to more, in a temporary file, is refused as a whole.
    """

    max_member_bytes: int = 2**30
    max_document_bytes: int = 64 * 2**20
    max_sample_bytes: int = 512 * 2**20
    max_columns: int = 1000
    max_unpacked_bytes: int = 2 * 2**30


LIMITS: Final = TarLimits()
"""The default limits."""


def check_limits(limits: TarLimits) -> TarLimits:
    """Return ``limits``; refuse one that is not a whole number from 1 with OptionError."""
    for name, value in limits._asdict().items():
        if type(value) is not int or value < 1:
            raise OptionError(f"{name} must be a whole number from 1, got {value!r}")
    return limits


def limits_of(options: Mapping[str, Any]) -> TarLimits:
    """Return the limits among the options of a reader or writer; sizes may be text such as ``"1GiB"``."""
    given = {name: options[name] for name in TarLimits._fields if name in options}
    sizes = {name: parse_size(value, name) for name, value in given.items() if name.endswith("_bytes")}
    return check_limits(LIMITS._replace(**given | sizes))
