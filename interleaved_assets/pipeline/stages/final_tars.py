"""The stage ``final_tars``: the training tars."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from interleaved_assets.io.archive.index import shortened
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.batches import prefetch, sample_starts
from interleaved_assets.io.rows.policy import apply_error_policy
from interleaved_assets.io.tar.writer import room_for_samples, sample_sizes, schema_bytes
from interleaved_assets.model.errors import ShardError
from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.model.shown import cut_list
from interleaved_assets.pipeline.checks.reads_back import READS_BACK
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.run.counts import write_by_error_policy
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, StageDisplay, StageOutput, Work
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS
from interleaved_assets.pipeline.stages.part_tars import UNSPLIT, WrittenTar, part_tars
from interleaved_assets.settings import Settings
from interleaved_assets.settings.sections import FinalTarsSettings

MAX_TARS: Final = 256
"""Most tars of one shard: each of them is a file or an upload that stays open until the last one is complete."""
_KEYS: Final = ("sample_id", "position", "modality", "source_ref", "materialize_error")
_NAMED: Final = 5


def write_tars(shard: ShardTask) -> Work:
    """Write ``tars/<key>.tar`` from the filtered rows, and the ledger of the rows that the error policy drops.

    If that tar would exceed a bound of ``[final_tars]``, it is split into ``tars/<key>~00000.tar`` and so on. Each tar
    is then read back by the rules of ``webdataset`` and compared with the rows.
    """
    samples = _samples_of_tars(shard)
    with (
        parquet_shard(shard.paths.ledger(FINAL_TARS), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        part_tars(shard, samples) as written,
    ):
        facts, dropped = write_by_error_policy(prefetch(shard.rows_of(FILTERED)), shard, FINAL_TARS, written.write)
        ledger_file.write(dropped)
    tars = written.tars
    files = [tar.file for tar in tars.values()]
    read_back: Counter[str] = Counter()
    for tar in tars.values():
        read_back.update(tar.samples.compare(tar.file, shard.options, all_tars=files))
    return Work(
        outputs={**{role: tar.file for role, tar in tars.items()}, "ledger": OutputFile.of(ledger_file.output)},
        **facts.model_dump(exclude={"counted", "notes", "parts"}),
        counted=facts.counted | read_back,
        notes=_notes([*tars.values()], shard.settings.final_tars),
        parts={role: tar.counts for role, tar in tars.items()} if len(tars) > 1 else {},
    )


def _samples_of_tars(shard: ShardTask) -> Sequence[int]:
    """Return the number of samples of each tar of the shard. With a bound, this reads the filtered rows once more."""
    settings = shard.settings.final_tars
    if not settings.bounds():
        return UNSPLIT
    bound, policy = settings.max_tar_bytes, shard.settings.errors.on_materialize_error
    sizes: list[int] = []
    room = None
    # the bytes of images are read only where sizes matter
    for table in prefetch(shard.rows_of(FILTERED, None if bound else _KEYS)):
        if policy != "warn":  # "warn" keeps all rows, and logs them when they are written
            table, _ = apply_error_policy(table, policy, shard=shard.key, stage=FINAL_TARS)
        if bound is None:
            sizes += [1] * len(sample_starts(table["sample_id"]))
            continue
        sizes += sample_sizes(table, shard.paths.output(FINAL_TARS), shard.settings.limits.for_tars())
        room = room_for_samples(bound) - schema_bytes(table.schema)
    parts = split_evenly(sizes, max_samples=settings.max_samples_per_tar, max_bytes=room)
    if len(parts) > MAX_TARS:
        raise ShardError(
            f"shard {shard.key}: the bounds of [final_tars] ask for {len(parts):,} tars of its {len(sizes):,} samples, "
            f"and a shard has at most {MAX_TARS}; raise max_samples_per_tar or max_tar_bytes"
        )
    return UNSPLIT if len(parts) == 1 else [len(part) for part in parts]


def _notes(tars: Sequence[WrittenTar], final_tars: FinalTarsSettings) -> dict[str, float | int | str]:
    """Describe how the final tar was split; empty if no bound is set."""
    bound = final_tars.max_tar_bytes
    if not final_tars.bounds():
        return {}
    sizes = [tar.file.size for tar in tars]
    notes: dict[str, float | int | str] = {
        "tars": len(tars),
        "smallest_tar_bytes": min(sizes),
        "largest_tar_bytes": max(sizes),
    }
    if bound is not None and (over := [tar for tar in tars if tar.file.size > bound]):
        named = [shortened(key) for tar in over for key in tar.samples.keys]
        notes |= {"tars_over_max_tar_bytes": len(over), "samples_over_max_tar_bytes": cut_list(named, _NAMED)}
    return notes


def split_evenly(sizes: Sequence[int], *, max_samples: int | None = None, max_bytes: int | None = None) -> list[range]:
    """Return the numbers of the samples of each part: consecutive, in order, each sample in one part, no part empty.

    There are as few parts as the bounds allow. A sample above ``max_bytes`` is a part of its own. Without ``max_bytes``
    the numbers of samples of two parts differ by at most one. With it, each part ends at the border of a sample that
    comes nearest to an equal share of the bytes that are left.

    The same arguments always give the same parts. There is at least one part, which is empty if there are no samples.
    ``sizes`` are the bytes of each sample; only these count for ``max_bytes``. None means no bound.
    """
    if max_bytes is None:
        # without a bound in bytes a part is measured by its number of samples
        return _split_run(0, [1] * len(sizes), max_samples, len(sizes)) or [range(0)]
    parts: list[range] = []
    start = 0
    for number, size in enumerate(sizes):
        if size > max_bytes:
            parts += _split_run(start, sizes[start:number], max_samples, max_bytes)
            parts.append(range(number, number + 1))
            start = number + 1
    parts += _split_run(start, sizes[start:], max_samples, max_bytes)
    return parts or [range(0)]


def _split_run(first: int, sizes: Sequence[int], max_samples: int | None, max_bytes: int) -> list[range]:
    """Return the parts of samples none of which exceeds ``max_bytes``; ``first`` is the number of the first sample."""
    count = len(sizes)
    most = count if max_samples is None else max_samples
    before = [0, *accumulate(sizes)]  # bytes of all samples before each border

    def furthest(start: int) -> int:
        """Return the last border at which a part that begins at the border ``start`` may end."""
        return min(bisect_right(before, before[start] + max_bytes) - 1, start + most)

    # for 0, 1, 2, … parts, the first border from which they reach the end
    earliest = [count]
    for start in range(count - 1, -1, -1):
        if furthest(start) < earliest[-1]:
            earliest.append(start + 1)
    parts: list[range] = []
    start = 0
    for left in range(len(earliest) if count else 0, 0, -1):
        low = max(earliest[left - 1], start + 1)
        high = min(furthest(start), count - left + 1)
        # in integers, so that rounding decides nothing
        share = before[start] * left + before[count] - before[start]
        stop = low
        while stop < high and abs(before[stop + 1] * left - share) < abs(before[stop] * left - share):
            stop += 1
        parts.append(range(first + start, first + stop))
        start = stop
    return parts


def _settings(settings: Settings) -> dict[str, object]:
    """Return the policy for rows that have an error, and the bounds that are set.

    The limits change no tar: a sample that exceeds one of them fails it.
    """
    return {"on_materialize_error": settings.errors.on_materialize_error, **settings.final_tars.bounds()}


STAGE: Final = Stage(
    FINAL_TARS,
    (FILTERED,),
    version=2,
    settings=_settings,
    run=write_tars,
    checks=(ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR, READS_BACK),
    output=StageOutput("tars"),
    display=StageDisplay(
        "Training tars: `<key>.json` and the images of each sample, readable as plain MINT-1T.",
        "publish",
        frozenset({"webdataset"}),
    ),
)
