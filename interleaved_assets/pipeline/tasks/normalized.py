"""The work of normalized: read a raw shard, apply the error policy, write the rows with the image bytes."""

import itertools
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.raw_versions import is_by_reference, with_raw_version
from interleaved_assets.io.storage import folders_of
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.tar.writer import check_modalities
from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.pipeline.raw.bundles import raw_format
from interleaved_assets.pipeline.run.counts import UNREFERENCED_IMAGES, column_facts, write_by_error_policy
from interleaved_assets.pipeline.run.publishable import ContentCounter
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Work
from interleaved_assets.pipeline.stages.names import NORMALIZED as NAME
from interleaved_assets.settings import Settings


def normalize(shard: ShardTask) -> Work:
    """Read the raw shard, write ``normalized/<key>.parquet`` and the ledger of the rows that the policy dropped.

    Raises IncompleteShard if the raw shard is cut or too many samples lose rows, and UnexpectedLayout if too few
    samples have content or too many bytes are unreferenced. Raises UnsupportedModality for rows that no tar can hold.
    """
    assert shard.raw is not None
    notes = Counter[str]()
    options = read_options(shard.raw.uri, shard.settings, notes)
    form = raw_format(shard.raw.uri, shard.settings.storage)
    by_reference = form.can_reference and shard.settings.storage.image_bytes == "referenced"
    options = options._replace(by_reference=by_reference)
    if shard.raw.files and form.read_files is not None:
        read = form.read_files(list(shard.raw.files), options)
    else:
        read = form.read(shard.raw.uri, options)
    batches = _tar_can_hold(read, shard.raw.uri)
    content = ContentCounter()
    first = next(batches)
    schema = first.schema
    if is_by_reference(schema):
        assert shard.source is not None
        schema = with_raw_version(schema, shard.raw.uri, shard.raw.size, shard.source.version)
    with (
        parquet_shard(shard.paths.ledger(NAME), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        parquet_shard(shard.paths.output(NAME), schema, storage_options=shard.options) as rows_file,
    ):
        counting = content.counting(itertools.chain([first], batches))
        facts, dropped = write_by_error_policy(counting, shard, NAME, rows_file.write)
        content.check_layout(shard, facts.counts_in.samples)
        ledger_file.write(dropped)
    return Work(
        outputs={"rows": OutputFile.of(rows_file), "ledger": OutputFile.of(ledger_file)},
        **facts.model_dump(exclude={"columns", "required", "notes", "counted"}),
        **column_facts(rows_file.schema),
        counted=facts.counted | content.counted,
        notes={**notes, UNREFERENCED_IMAGES: content.counted[UNREFERENCED_IMAGES]},
    )


def _tar_can_hold(batches: Iterator[pa.Table], uri: str) -> Iterator[pa.Table]:
    """Yield ``batches``; raise UnsupportedModality here, and not stages later, for rows that no tar can hold."""
    for table in batches:
        check_modalities(table, uri)
        yield table


def read_options(uri: str, settings: Settings, notes: Counter[str] | None = None) -> ReadOptions:
    """Return how the settings say that a shard file is read, with its bytes; ``notes`` as for ``read_shard``."""
    return ReadOptions(
        layout=settings.reading.for_tars(),
        max_batch_bytes=settings.run.max_batch_bytes,
        materialize=True,
        storage_options=settings.storage.options_for(uri),
        # a raw shard may be a link to a file elsewhere, and rows of normalized have locators in raw shards
        allowed_roots=[settings.storage.raw_root, *folders_of([uri])],
        limits=settings.limits.for_tars(),
        accept_incomplete=settings.publish.accept_incomplete,
        notes=notes,
        sections=settings.reading.sections(),
    )
