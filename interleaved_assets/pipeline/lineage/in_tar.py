"""Find a sample in the final tars of its shard: which of them has it, and its members."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import pyarrow.compute as pc

from interleaved_assets.io.archive.index import TarMember
from interleaved_assets.io.archive.source import open_tar
from interleaved_assets.io.batches import sample_starts
from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.tar.layout import member_key
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.record import OutputFile, Record
from interleaved_assets.pipeline.stages import filtered
from interleaved_assets.shard_paths import ShardPaths


class SampleInTar(NamedTuple):
    """The members of one sample in a final tar."""

    uri: str
    """Of the tar; of a shard that is split, of one of its parts."""
    members: list[TarMember]
    """Its JSON, its images, and members that no document names; in the order of the tar."""


def find_in_tar(sample_id: str, paths: ShardPaths, record: Record) -> SampleInTar:
    """The members of a sample that ``final_tars`` kept. Only headers of tars are read.

    Of a shard that is split, the part is looked at first that has the sample by its place among the filtered rows.

    Args:
        record: of ``final_tars`` of the shard.

    Raises:
        ShardError: no tar has the sample.
    """
    start = f"{member_key(sample_id)}."
    for tar in _by_likelihood(sample_id, paths, record):
        with open_tar(tar.uri, paths.options, by_ranges=True) as source:
            if members := [member for member in source.index.members if member.name.startswith(start)]:
                return SampleInTar(tar.uri, members)
    raise ShardError(
        f"shard {paths.key}: {record.rows_uri} has no {start}json, although its record counts the sample. "
        "Materialize final_tars again."
    )


def _by_likelihood(sample_id: str, paths: ShardPaths, record: Record) -> Iterator[OutputFile]:
    """The tars, first the one that should have the sample, then those next to it."""
    files = record.rows_files
    if len(files) == 1:
        yield from files.values()
        return
    with open_parquet(paths.output(filtered.NAME), paths.options, advice="Materialize filtered again.") as source:
        ids = source.read(["sample_id"])["sample_id"]
    starts = sample_starts(ids)
    number = pc.index(ids.take(starts), sample_id).as_py()
    # samples that the error policy dropped are in no tar, so that it may be an earlier one
    ends = [*accumulate(record.parts[role].samples for role in files)]
    likely = bisect_right(ends, number)
    for _, tar in sorted(enumerate(files.values()), key=lambda item: abs(item[0] - likely)):
        yield tar
