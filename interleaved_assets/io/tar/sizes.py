"""Bytes that samples take in a tar, known before it is written."""

import json

import pyarrow as pa

from interleaved_assets.io.archive.index import BLOCK, RECORD, member_header, padding
from interleaved_assets.io.limits import LIMITS, TarLimits
from interleaved_assets.io.tar.exact import Exact
from interleaved_assets.io.tar.layout import EXACT_FIELD
from interleaved_assets.io.tar.members import Member, TarDocuments
from interleaved_assets.io.tar.writer import checked_rows
from interleaved_assets.model.errors import OptionError


def sample_sizes(table: pa.Table, uri: str, limits: TarLimits = LIMITS) -> list[int]:
    """Bytes of the members of each sample, with their headers, in the order of the tar.

    The first sample of a tar may take :func:`schema_bytes` more.

    Args:
        table: the samples, each of them whole.
        uri: of the tar, for messages.
        limits: those that the tar will be read with.

    Raises:
        UnsupportedModality: a row is neither metadata nor text nor an image.
        OptionError: the tar could not be written, as for :meth:`~.writer.TarShard.write`.
    """
    table = checked_rows(table, uri, limits)
    if not table.num_rows:
        return []
    try:
        return [sum(map(_member_bytes, members)) for members in TarDocuments(table, states_schema=False, limits=limits)]
    except OptionError as error:
        raise OptionError(f"cannot write {uri}: {error}") from error


def schema_bytes(schema: pa.Schema) -> int:
    """Most bytes that the first document of a tar takes beyond its own, to say which columns there are."""
    said = json.dumps({EXACT_FIELD: Exact(schema=schema.remove_metadata()).to_json()})
    return len(said) + BLOCK


def room_for_samples(tar_bytes: int) -> int:
    """Bytes that the samples of a tar may take together so that the whole file has at most ``tar_bytes``.

    Negative where not even an empty tar has so few.
    """
    return tar_bytes // RECORD * RECORD - 2 * BLOCK


def _member_bytes(member: Member) -> int:
    size = len(member.content)
    return len(member_header(member.name, size)) + size + len(padding(size))
