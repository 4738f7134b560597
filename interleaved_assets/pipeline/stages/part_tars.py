"""The final tar of a shard as one tar or as several, and the search for parts that an earlier run has left.

All tars are stored before the first one becomes visible. Then the tars that they replace are removed, from the last
part to the first, and the new ones appear, from the first part to the last. A reader of the folder never sees a sample
twice. A run that is killed leaves parts 0, 1, … without a gap, which the next run finds.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import pyarrow as pa

from interleaved_assets.io.rows.batches import sample_starts
from interleaved_assets.io.storage import is_file, remove_file
from interleaved_assets.io.tar.writer import TarShard, tar_shard
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.run.counts import RowCounter
from interleaved_assets.pipeline.run.record import Counts, OutputFile, Record
from interleaved_assets.pipeline.run.stage import ShardTask
from interleaved_assets.pipeline.stages.read_back import WrittenSamples
from interleaved_assets.settings.shard_paths import FINAL_TARS, ROWS, ShardPaths, part_role

UNSPLIT: Final = (sys.maxsize,)
"""Numbers of samples of the tars of an unsplit shard, for any number of samples."""


class WrittenTar(NamedTuple):
    file: OutputFile
    counts: Counts
    samples: WrittenSamples
    """The samples that it must contain."""


def stored_parts(paths: ShardPaths, recorded: Record | None) -> list[str]:
    """Return the stored parts of the shard's final tar, from the last to the first.

    Parts are searched from the first on, until one is missing. Beyond it, the parts that the record names are added.
    """
    named = {tar.uri for role, tar in recorded.rows_files.items() if role != ROWS} if recorded else set()
    found: set[str] = set()
    while is_file(uri := paths.tar_part(len(found)), paths.options):
        found.add(uri)
    found |= {uri for uri in named - found if is_file(uri, paths.options)}
    return sorted(found, reverse=True)


class _Part(NamedTuple):
    """One tar being written."""

    tar: TarShard
    commits: ExitStack
    """Makes the tar visible when it is closed, or discards it when it ends with an error; each happens once."""
    samples: WrittenSamples
    counter: RowCounter

    def store(self) -> None:
        self.tar.finish()
        self.tar.output.store()


class PartTars:
    """The tars of a shard being written; :func:`part_tars` yields it. ``tars`` are those committed, by role."""

    def __init__(self, shard: ShardTask, samples: Sequence[int]) -> None:
        paths = shard.paths
        self._shard, self._samples = shard, samples
        self._places = {ROWS: paths.output(FINAL_TARS)}
        if len(samples) > 1:
            self._places = {part_role(number): paths.tar_part(number) for number in range(len(samples))}
        self._begun: list[_Part] = []
        self._left = 0
        """Samples that still belong into the last tar that was begun."""
        self.tars: dict[str, WrittenTar] = {}

    def write(self, table: pa.Table) -> None:
        """Append whole samples, the rows of each adjacent; raise ShardError if they exceed what the tars are for."""
        borders = [*sample_starts(table["sample_id"]).tolist(), table.num_rows]
        first, last = 0, len(borders) - 1
        while first < last:
            if not self._left:
                self._begin()
            stop = min(last, first + self._left)
            samples = table.slice(borders[first], borders[stop] - borders[first])
            part = self._begun[-1]
            part.samples.add(samples)
            part.counter.add(samples)
            part.tar.write(samples)
            self._left -= stop - first
            first = stop

    def store(self) -> None:
        """Complete the last tar, which is still invisible; called by :func:`part_tars`."""
        if not self._begun:
            self._begin()
        if len(self._begun) > 1:
            self._begun[-1].store()
        if len(self._places) > 1 and (self._left or len(self._begun) < len(self._places)):
            raise self._changed()

    def commit(self) -> None:
        """Remove the tars that are replaced, and make the new ones visible; called by :func:`part_tars`."""
        paths = self._shard.paths
        replaced = stored_parts(paths, self._shard.recorded)
        if len(self._places) > 1:
            replaced.append(paths.output(FINAL_TARS))  # a single tar is replaced by the new one
        for uri in replaced:
            remove_file(uri, paths.options)
        for part in self._begun:
            part.commits.close()
        done = zip(self._places, self._begun, strict=True)
        self.tars = {
            role: WrittenTar(OutputFile.of(part.tar.output), part.counter.counts, part.samples) for role, part in done
        }

    def abandon(self, error: BaseException) -> None:
        """Discard the tars that are not committed; called by :func:`part_tars`."""
        for part in self._begun:
            part.commits.__exit__(type(error), error, error.__traceback__)

    def _begin(self) -> None:
        number = len(self._begun)
        if number == len(self._places):
            raise self._changed()
        if number:
            self._begun[-1].store()
        uri = [*self._places.values()][number]
        options, limits = self._shard.options, self._shard.settings.limits.for_tars()
        commits = ExitStack()
        tar = commits.enter_context(tar_shard(uri, storage_options=options, limits=limits))
        self._begun.append(_Part(tar, commits, WrittenSamples(), RowCounter()))
        self._left = self._samples[number]

    def _changed(self) -> ShardError:
        return ShardError(
            f"shard {self._shard.key}: its samples are not those that were counted before; another run has replaced "
            "the filtered rows. Materialize it again."
        )


@contextmanager
def part_tars(shard: ShardTask, samples: Sequence[int]) -> Iterator[PartTars]:
    """Write the final tars of ``shard``. At the end of the block they replace all its earlier tars, or none of them.

    ``samples`` are the numbers of samples of the tars; :data:`UNSPLIT` for one tar. Raises ShardError if other numbers
    were written.
    """
    tars = PartTars(shard, samples)
    try:
        yield tars
        tars.store()
        tars.commit()
    except BaseException as error:
        tars.abandon(error)
        raise
