"""The documents of a shard of the project, with all facts that their page shows."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.formats.registry import PARQUET
from interleaved_assets.io.parquet.reader import parquet_shard_schema
from interleaved_assets.io.storage import files_below, join
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model.columns import BINARY_SIZE, REQUIRED_COLUMNS
from interleaved_assets.model.errors import ShardError, StorageError, StorageUnavailable
from interleaved_assets.model.ledger import drop_reasons, empty_ledger
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.pipeline.lineage.contents import RowKey, dropped_contents, row_keys
from interleaved_assets.pipeline.run.record import record_of
from interleaved_assets.pipeline.stages.dag import OUTPUTS, ROW_STAGES, stage_dag
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS, REWRITTEN
from interleaved_assets.pipeline.stages.outputs import find_table
from interleaved_assets.reporting.documents.choice import Choice, check_choice, choose_documents
from interleaved_assets.reporting.documents.document import ShownDocument, build_documents, rows_of_samples
from interleaved_assets.reporting.documents.text_scores import text_scores
from interleaved_assets.reporting.figures.collect import shard_facts
from interleaved_assets.reporting.figures.facts import ImageKey, ShardFacts, image_keys, pictures_by_key, thumbnails_in
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets.reporting.figures.pictures import BATCH_BYTES, shown_thumbnails, with_images
from interleaved_assets.scoring.images.thumbnail import THUMBNAIL_COLUMN, previews
from interleaved_assets.scoring.protocol.scorer import ERROR_COLUMN
from interleaved_assets.selection.positions import reindex_positions
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets.settings.shard_paths import CHANGES, ShardPaths

logger = logging.getLogger(__name__)

PREVIEWS: Final = 250
"""Most images for which a page can show larger pictures than thumbnails."""
_IMAGE_COLUMNS: Final = (*REQUIRED_COLUMNS, "binary_content", "source_ref", BINARY_SIZE)


@dataclass(frozen=True)
class DocumentPage:
    """The content of the page of a shard's documents.

    Attributes:
        title: key of the shard, or the file.
        documents: the chosen documents.
        how: how they were chosen, such as ``14 documents``.
        facts: counts and errors of the whole shard; None for a file that is read without a project.
        reasons: dropped rows of the whole shard, by reason, most frequent first.
        layout: signs that the file is not laid out as the settings say.
    """

    title: str
    documents: Sequence[ShownDocument]
    how: str
    facts: ShardFacts | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    layout: Sequence[str] = ()


def shard_documents(
    key: str, settings: Settings, choice: Choice, *, with_previews: bool = False, facts: ShardFacts | None = None
) -> DocumentPage:
    """Return documents of a shard of the project, with the drops of each stage in their places.

    Thumbnails that are not stored are made. ``with_previews`` decodes the images for larger pictures, also if the shard
    was scored without thumbnails, unless there are more than :data:`PREVIEWS` images. ``facts`` are those of the shard,
    with thumbnails, if they were read before. Raises NothingChosen as
    :func:`~interleaved_assets.reporting.documents.choice.check_choice`.
    """
    paths = settings.storage.shard(key)
    facts = facts or shard_facts(key, settings)
    if facts.counted_to is None:
        raise ShardError(f"shard {key}: there are no normalized rows to show: materialize normalized")
    stored = paths.output(facts.rows_stage)
    keys = pa.concat_tables(_read(stored, paths, REQUIRED_COLUMNS))
    ledger = empty_ledger() if facts.ledger is None else _in_positions_of_rows(facts.ledger, keys, paths)
    sample_ids = list(dict.fromkeys([*keys["sample_id"].to_pylist(), *ledger["sample_id"].to_pylist()]))
    reasons = drop_reasons(ledger)
    check_choice(choice, sample_ids, reasons, f"shard {key}")
    chosen = choose_documents(sample_ids, _reasons_by_sample(ledger), choice, _without_pictures(facts.scores))
    schema = parquet_shard_schema(stored, storage_options=paths.options)
    columns = [name for name in schema.names if name not in ("binary_content", BINARY_SIZE)]
    rows = pa.concat_tables(rows_of_samples(table, chosen.sample_ids) for table in _read(stored, paths, columns))
    pictures = {} if facts.scores is None else thumbnails_in(rows_of_samples(facts.scores, chosen.sample_ids))
    images = pc.sum(pc.equal(rows["modality"], "image"), min_count=0).as_py()
    if with_previews and (images <= PREVIEWS or not pictures):
        try:
            tables = (rows_of_samples(table, chosen.sample_ids) for table in _read(stored, paths, _IMAGE_COLUMNS))
            for part in with_images(tables, facts.rows_stage, paths, settings.storage):
                pictures |= previews_of(part)
        except (StorageError, ShardError) as error:
            if not pictures or isinstance(error, StorageUnavailable):
                raise
            logger.warning("the pictures are the stored thumbnails: %s", error)
    else:
        shown = image_keys(filter_rows(rows, pc.equal(rows["modality"], "image")))
        pictures = shown_thumbnails(shown, facts.scores, paths, settings.storage)
    of_texts = text_scores(facts.documents, chosen.sample_ids, settings.selection)
    documents = build_documents(
        chosen.sample_ids,
        rows,
        pictures,
        measures_of(settings.selection),
        scores=facts.scores,
        ledger=ledger,
        sample_scores=facts.sample_scores,
        changes=find_table(paths.other(CHANGES), paths, REWRITTEN) if REWRITTEN in stage_dag(settings) else None,
        contents=_dropped_before(ledger, chosen.sample_ids, paths),
        of_texts=of_texts.judged,
        measured=of_texts.measured,
    )
    return DocumentPage(key, documents, chosen.how, facts, reasons)


def _dropped_before(ledger: pa.Table, sample_ids: Sequence[str], paths: ShardPaths) -> dict[RowKey, str]:
    """Return the contents of rows that a stage between ``normalized`` and ``filtered`` has dropped.

    Texts that a stage hides when it drops them are left out.
    """
    stages = [name for name in ROW_STAGES[1:] if not OUTPUTS[name].hides_dropped_texts]
    before = pc.is_in(ledger["stage"], pa.array([name for name in stages if name != FILTERED], pa.string()))
    return dropped_contents(rows_of_samples(ledger.filter(before), sample_ids), paths)


def stored_pages(storage: StorageSettings) -> dict[str, str]:
    """Return, by key of a shard that has a page, its path relative to the output root as in a link; one listing."""
    names = files_below(join(storage.output_root, "pages"), storage.options)
    return {name.removesuffix(".html"): quote(f"pages/{name}") for name in names if name.endswith(".html")}


def previews_of(rows: pa.Table) -> dict[ImageKey, bytes]:
    """Return pictures of the images in ``rows``, made from their bytes; none for an image that cannot be decoded."""
    images = filter_rows(rows, pc.and_(pc.equal(rows["modality"], "image"), pc.is_valid(rows["binary_content"])))
    return pictures_by_key(images, previews([content.as_buffer() for content in images["binary_content"]]))


def _read(uri: str, paths: ShardPaths, columns: Collection[str]) -> Iterator[pa.Table]:
    """Read the rows at ``uri`` as at least one table, which may be empty."""
    options = ReadOptions(max_batch_bytes=BATCH_BYTES, storage_options=paths.options, columns=columns)
    return PARQUET.read(uri, options)


def _without_pictures(scores: pa.Table | None) -> set[str]:
    """Return the samples with an image whose thumbnail is not stored, and can be made."""
    if scores is None or THUMBNAIL_COLUMN not in scores.column_names:
        return set()
    missing = pc.and_(scores[THUMBNAIL_COLUMN].is_null(), scores[ERROR_COLUMN].is_null())
    return set(scores["sample_id"].filter(missing).to_pylist())


def _reasons_by_sample(ledger: pa.Table) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for sample_id, reason in zip(ledger["sample_id"].to_pylist(), ledger["reason"].to_pylist(), strict=True):
        found[sample_id][reason] = None
    return {sample_id: list(reasons) for sample_id, reasons in found.items()}


def _in_positions_of_rows(ledger: pa.Table, keys: pa.Table, paths: ShardPaths) -> pa.Table:
    """Return ``ledger`` with the positions before selection, which may renumber them; ``keys`` are of rows then."""
    later = pc.equal(ledger["stage"], FINAL_TARS)
    if not pc.any(later, min_count=0).as_py():
        return ledger
    record = record_of(paths, FILTERED)
    selection = record.settings.get("settings") if record else None
    if not (isinstance(selection, Mapping) and selection.get("reindex_positions")):
        return ledger
    gone = set(row_keys(ledger.filter(pc.invert(later))))
    kept = keys.filter(pa.array([key not in gone for key in row_keys(keys)], pa.bool_()))
    before = dict(zip(row_keys(reindex_positions(kept)), kept["position"].to_pylist(), strict=True))
    at = [
        before.get(RowKey(key.sample_id, key.position, key.modality), key.position) if moved else key.position
        for key, moved in zip(row_keys(ledger), later.to_pylist(), strict=True)
    ]
    place = ledger.column_names.index("position")
    return ledger.set_column(place, ledger.schema.field(place), pa.array(at, pa.int32()))
