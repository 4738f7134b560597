"""Measure the images of one shard file, and select its rows by stored scores."""

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.formats.shard import read_file
from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.model.errors import OptionError
from interleaved_assets.pipeline.files.filtering import check_filters, image_columns, keep_selected
from interleaved_assets.pipeline.files.inputs import ShardFile
from interleaved_assets.pipeline.files.write_rows import check_target, identity, write_rows
from interleaved_assets.pipeline.run.counts import write_scores
from interleaved_assets.pipeline.run.stage import Work
from interleaved_assets.pipeline.stages.normalized import read_options
from interleaved_assets.scoring.images.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.scoring.protocol.registry import score_groups
from interleaved_assets.scoring.protocol.score import score_images
from interleaved_assets.scoring.protocol.scorer import ERROR_COLUMN
from interleaved_assets.scoring.protocol.values import score_column
from interleaved_assets.selection.positions import join_scores, with_keys
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.settings import Settings


def score_file(file: ShardFile, target: str, settings: Settings, *, overwrite: bool) -> Work:
    """Measure each image of a shard and write its scores as Parquet, one row an image, in the order of the images.

    CLIP's scores are among them if ``clip.enabled`` is set.
    """
    check_target(target, [file.uri], settings.storage, overwrite=overwrite)
    measure = _measure(settings)
    scores = pa.concat_tables([measure(table) for table in read_file(file.uri, read_options(file.uri, settings))])
    options = settings.storage.options_for(target)
    return write_scores(scores, target, options, ERROR_COLUMN, score_groups(settings.scoring))


def _measure(settings: Settings) -> Callable[[pa.Table], pa.Table]:
    """Return what measures the images of a table; loads CLIP's model if ``clip.enabled`` is set."""
    if not settings.clip.enabled:
        return partial(score_images, settings=settings.scoring)
    from interleaved_assets.scoring.clip import load_scorer, score_table

    scorer = load_scorer(settings.clip, settings.storage.options_by_scheme())

    def measure(table: pa.Table) -> pa.Table:
        scores = score_images(table, settings.scoring)
        return join_scores(scores, score_table(table, scorer, image_scores=scores))

    return measure


def select_file(
    file: ShardFile,
    scores_uri: str,
    target: str,
    ledger_uri: str,
    settings: Settings,
    selection: SelectionSettings,
    *,
    whole_section: bool,
    overwrite: bool,
) -> tuple[Work, tuple[str, ...]]:
    """Write the rows of a shard that pass the filters, decided from stored scores, and the ledger of the others.

    Returns what was written, and the filters that were not applied, since the scores lack their optional columns.

    Raises:
        OptionError: the scores lack what a filter needs, have it in a type that does not fit, or are those of another
            shard; an output is an input;
            ``target`` has another ending.
    """
    for uri in (target, ledger_uri):
        check_target(uri, [file.uri, scores_uri], settings.storage, overwrite=overwrite)
    if identity(target) == identity(ledger_uri):
        raise OptionError(f"rows and ledger cannot both be written to {target}: name another --ledger")
    with open_parquet(scores_uri, settings.storage.options_for(scores_uri)) as stored:
        names = stored.schema.names
        scores = stored.read([name for name in names if name not in (THUMBNAIL_COLUMN, "embedding")])
    passed_over = check_filters(selection, scores.column_names, whole_section=whole_section)
    scores = with_keys(scores, scores_uri)
    for name in image_columns(selection):
        if name in scores.column_names:
            score_column(scores, name, pa.float64(), scores_uri)  # named here, since later the file is not known
    is_checked = False

    def keep(table: pa.Table) -> tuple[pa.Table, pa.Table]:
        nonlocal is_checked
        # only once: images that no document names have no scores, and come last
        if not is_checked and len(ids := table["sample_id"].filter(pc.equal(table["modality"], "image"))):
            is_checked = True
            if not pc.any(pc.is_in(ids, value_set=pc.unique(scores["sample_id"])), min_count=0).as_py():
                raise OptionError(
                    f"{scores_uri} has no score of the images of {file.uri}: it was measured on another shard. Measure "
                    f"this one with: interleaved score {file.uri}"
                )
        return keep_selected(table, scores, selection, settings, file.uri)

    return write_rows(file, target, ledger_uri, settings, keep), passed_over
