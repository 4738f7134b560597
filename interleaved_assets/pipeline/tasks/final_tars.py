"""The work of final_tars: write training tars within the bounds of samples and bytes, and read them back."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from interleaved_assets.io.archive.index import shortened
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.batches import prefetch, sample_starts
from interleaved_assets.io.rows.policy import apply_error_policy
from interleaved_assets.io.tar.writer import room_for_samples, sample_sizes, schema_bytes
from interleaved_assets.model.errors import ShardError
from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.model.shown import cut_list
from interleaved_assets.pipeline.run.counts import write_by_error_policy
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Work
from interleaved_assets.pipeline.stages.names import FILTERED
from interleaved_assets.pipeline.stages.names import FINAL_TARS as NAME
from interleaved_assets.pipeline.tasks.part_tars import UNSPLIT, WrittenTar, part_tars
from interleaved_assets.pipeline.tasks.split import split_evenly
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
        parquet_shard(shard.paths.ledger(NAME), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        part_tars(shard, samples) as written,
    ):
        facts, dropped = write_by_error_policy(prefetch(shard.rows_of(FILTERED)), shard, NAME, written.write)
        ledger_file.write(dropped)
    tars = written.tars
    files = [tar.file for tar in tars.values()]
    read_back: Counter[str] = Counter()
    for tar in tars.values():
        read_back.update(tar.samples.compare(tar.file, shard.options, all_tars=files))
    return Work(
        outputs={**{role: tar.file for role, tar in tars.items()}, "ledger": OutputFile.of(ledger_file)},
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
            table, _ = apply_error_policy(table, policy, shard=shard.key, stage=NAME)
        if bound is None:
            sizes += [1] * len(sample_starts(table["sample_id"]))
            continue
        sizes += sample_sizes(table, shard.paths.output(NAME), shard.settings.limits.for_tars())
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
