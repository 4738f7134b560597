"""The stage ``image_export``: the kept images as tars, with a table beside each."""

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.export.image_rows import DocumentFields, document_fields, image_rows, text_parts
from interleaved_assets.export.names import is_image_file, scope_of, set_name
from interleaved_assets.export.tars import ImageSet, image_tars
from interleaved_assets.io.parquet.reader import parquet_shard_schema
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.io.storage import files_below, join, remove_file
from interleaved_assets.model.errors import ShardError
from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance, drop_reasons, empty_ledger
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.run.counts import RowCounter, check_losses, column_facts, count_errors
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, StageDisplay, StageOutput, Work, with_image_scores
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS, IMAGE_EXPORT
from interleaved_assets.pipeline.stages.outputs import read_ledgers, read_scores
from interleaved_assets.selection.positions import match_scores
from interleaved_assets.settings import Settings

_TARS: Final = "tars"


def export_images(shard: ShardTask) -> Work:
    """Write the kept images as tars, each with a table beside it, one table of all of them, and the ledger.

    The tars are ``images/<key>/images-<hash>-<number>.tar``, each with a Parquet file beside it.
    ``image_export/<key>.parquet`` has the rows of all of them. The ledger has the images that failed.

    The table of all images is replaced once every tar is complete, and the tars of an earlier export are removed after
    that: the files that it names are always those of one export.
    """
    settings, paths = shard.settings, shard.paths
    scores = _kept_scores(shard)
    fields = document_fields(parquet_shard_schema(paths.output(FILTERED), storage_options=shard.options))
    place = ImageSet(paths.images(), _set_name(shard), scope_of(shard.key))
    seen, written = RowCounter(), RowCounter()
    samples, done = 0, 0
    errors: Counter[str] = Counter()
    ledgers = [empty_ledger()]
    with (
        image_tars(
            place,
            scores.schema,
            settings.export,
            fields=fields,
            storage_options=shard.options,
            max_pixels=settings.scoring.max_pixels,
        ) as tars,
        parquet_shard(paths.ledger(IMAGE_EXPORT), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        parquet_shard(paths.output(IMAGE_EXPORT), tars.schema, storage_options=shard.options) as rows_file,
    ):
        for table in prefetch(shard.rows_of(FILTERED, [*INTERLEAVED_SCHEMA.names, *fields.names])):
            images, own = image_rows(table), DocumentFields(table)
            of_images = scores.slice(done, images.num_rows)
            if not images["sample_id"].equals(of_images["sample_id"]):
                raise _other_images(shard)
            for part in text_parts(images, own):
                rows, ledger = tars.write(images[part], of_images[part], own.part(part))
                check_balance(f"shard {shard.key}, {IMAGE_EXPORT}", part.stop - part.start, rows.num_rows, ledger)
                rows_file.write(rows)
                written.add(rows.append_column("modality", pa.repeat(pa.scalar("image"), rows.num_rows)))
                ledgers.append(ledger)
            seen.add(images)
            has_bytes = images["binary_content"].is_valid()
            errors.update(count_errors(images["materialize_error"].filter(has_bytes)))
            done += images.num_rows
            samples += pc.count_distinct(table["sample_id"]).as_py()
        if done != scores.num_rows:
            raise _other_images(shard)
        dropped = pa.concat_tables(ledgers)
        check_losses(shard, IMAGE_EXPORT, samples, dropped)
        ledger_file.write(dropped)
        tars.finish()
    reasons = drop_reasons(dropped)
    written_files = [file for chunk in tars.chunks for file in (chunk.tar, chunk.table.output)]
    files = {file.uri.rpartition("/")[2]: OutputFile.of(file) for file in written_files}
    for name in files_below(paths.images(), shard.options):
        if is_image_file(name) and name not in files:
            remove_file(join(paths.images(), name), shard.options)
    return Work(
        outputs={"rows": OutputFile.of(rows_file.output), "ledger": OutputFile.of(ledger_file.output), **files},
        counts_in=seen.counts,
        counts_out=written.counts.model_copy(update={"image_bytes": tars.image_bytes}),
        errors=dict(errors + Counter(reasons)),
        dropped=reasons,
        **column_facts(rows_file.schema),
        notes={_TARS: len(tars.chunks), "name": place.name},
    )


def _kept_scores(shard: ShardTask) -> pa.Table:
    """Return the scores of the images that selection has kept, in the order of the images.

    ``filtered`` may renumber positions. The scores have the order of the images of ``normalized``, and the ledger of
    ``filtered`` names the dropped images by their positions there. The remaining scores have the order of the kept
    rows.
    """
    scores = read_scores(shard.paths, shard.score_inputs)
    if not shard.read[FILTERED].dropped:
        return scores
    ledger = read_ledgers(shard.paths, [FILTERED])
    dropped = ledger.filter(pc.equal(ledger["modality"], "image"))
    return scores.filter(pa.array(match_scores(scores, dropped) < 0))


def _other_images(shard: ShardTask) -> ShardError:
    return ShardError(
        f"shard {shard.key}: the scores less the dropped images are not those of the images in filtered; materialize "
        "the shard again from image_scores on"
    )


def _set_name(shard: ShardTask) -> str:
    """Return 16 hex digits, the same for the same images, scores and settings of one shard, else random ones."""
    settings = shard.settings
    if not settings.export.deterministic_name:
        return set_name(uuid.uuid4().hex)
    versions = {name: record.data_version for name, record in shard.read.items() if name != FINAL_TARS}
    chosen = settings.export.stage_version(settings.scoring.max_pixels)
    return set_name(json.dumps([shard.key, versions, chosen], sort_keys=True))


def _connect(stage: Stage, settings: Settings, before: Sequence[Stage]) -> Stage | None:
    if not settings.export.enabled:
        return None
    # it does not read the final tar, but runs after it, so that a shard that failed there is not exported
    scored = tuple(one.name for one in with_image_scores(before))
    return replace(stage, inputs=(FILTERED, *scored, FINAL_TARS), score_inputs=scored)


STAGE: Final = Stage(
    IMAGE_EXPORT,
    version=2,
    settings=lambda settings: settings.export.stage_version(settings.scoring.max_pixels),
    run=export_images,
    packages=lambda settings: {"pillow"} if settings.export.reencode else set(),
    checks=(ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR),
    connect=_connect,
    output=StageOutput("images"),
    display=StageDisplay(
        "The images that selection has kept as tars `images-<hash>-<number>.tar`, with a JSON for each image and a "
        "Parquet file beside each tar. This table has one row per image: its tar and member, its scores and the "
        "texts around it.",
        "publish",
        frozenset({"webdataset", "parquet"}),
    ),
)
