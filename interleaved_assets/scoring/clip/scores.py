"""CLIP scores of shards: images batched across samples and shards, decoded on threads ahead of the device.

The model and torch load with :func:`load_scorer`; importing this module loads neither.

    scorer = load_scorer(settings)
    for name, scores in score_shards([("a", read_parquet_shard("a.parquet"))], scorer):
        ...
"""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from interleaved_assets.io.batches import prefetch
from interleaved_assets.io.storage import StorageOptionsByScheme
from interleaved_assets.model.errors import MissingDependency, OptionError
from interleaved_assets.scoring.clip.demo_model import refuse_demo_model
from interleaved_assets.scoring.clip.reading import ImageScores, SampleReader
from interleaved_assets.scoring.clip.samples import clip_schema
from interleaved_assets.scoring.clip.settings import ClipSettings, head_column
from interleaved_assets.scoring.clip.stream import ClipStats, ScoreStream

if TYPE_CHECKING:
    from interleaved_assets.scoring.clip.device_jpeg import DevicePreprocess
    from interleaved_assets.scoring.clip.embed import Embedder
    from interleaved_assets.scoring.clip.image import Preprocess
    from interleaved_assets.scoring.clip.text import Tokenizer

__all__ = ["ClipScorer", "ClipStats", "ImageScores", "load_scorer", "score_shards", "score_table"]

# Tables that may wait for the caller.
_TABLES_AHEAD: Final = 2
_EXTRA_PACKAGES: Final = frozenset({"torch", "torchvision", "open_clip", "safetensors"})


@dataclass(frozen=True)
class ClipScorer:
    """A loaded model with all that goes with it. Made by :func:`load_scorer`."""

    settings: ClipSettings
    embedder: "Embedder"
    tokenizer: "Tokenizer"
    preprocess: "Preprocess"
    on_device: "DevicePreprocess | None" = None

    @property
    def schema(self) -> pa.Schema:
        """Schema of the score tables; see :func:`~interleaved_assets.scoring.clip.samples.clip_schema`."""
        return clip_schema(self.settings, self.embedder.model.width)

    def facts(self) -> dict[str, str]:
        """What a report of a run should say: device, model, precision, model fingerprint."""
        model = self.embedder.model
        return {
            "device": model.device_name,
            "model": model.name,
            "precision": model.precision,
            "fingerprint": model.fingerprint,
        }


def load_scorer(
    settings: ClipSettings,
    options: StorageOptionsByScheme | None = None,
    *,
    is_demo_data: Callable[[], bool] = lambda: False,
) -> ClipScorer:
    """The scorer of ``settings``. The model is loaded once a process, however often this is called.

    Args:
        settings: which model, heads and device.
        options: fsspec options by URL scheme (``{"s3": {…}}``) for checkpoint, configuration and heads.
        is_demo_data: whether what is to be scored is the demo's data, the only data that the demo's model knows; asked
            only where the model is that one.

    Raises:
        MissingDependency: torch or open_clip is not installed, or with ``clip.decode = "device"`` torchvision has no
            decoder for the device.
        SettingsError: device, model, checkpoint or a head is not there, damaged, or does not fit the rest; the model is
            the demo's and the data is not.
        StorageUnavailable: the storage did not answer.
    """
    refuse_demo_model(settings, is_demo_data, options)
    try:
        from interleaved_assets.scoring.clip.embed import Embedder
        from interleaved_assets.scoring.clip.heads import load_head
        from interleaved_assets.scoring.clip.image import Preprocess
        from interleaved_assets.scoring.clip.model import load_clip
        from interleaved_assets.scoring.clip.text import Tokenizer
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA_PACKAGES:
            raise
        raise MissingDependency(
            f"CLIP scoring needs {error.name}, which is not installed here: pip install 'interleaved-assets[clip]'"
        ) from error
    model = load_clip(settings, options)
    preprocess = Preprocess.of(model.preprocess_config, model.resizer, settings.max_pixels)
    on_device = None
    if settings.decode == "device":
        from interleaved_assets.scoring.clip.device_jpeg import DevicePreprocess

        on_device = DevicePreprocess(preprocess, model.device)
    heads = [load_head(name, head, model.width, options) for name, head in settings.heads.items()]
    return ClipScorer(
        settings=settings,
        embedder=Embedder(model, settings.batch_size, heads),
        tokenizer=Tokenizer(model.tokenizer, settings.long_text),
        preprocess=preprocess,
        on_device=on_device,
    )


def score_shards(
    shards: Iterable[tuple[str, Iterable[pa.Table]]],
    scorer: ClipScorer,
    *,
    image_scores: ImageScores | None = None,
    stats: ClipStats | None = None,
) -> Generator[tuple[str, pa.Table], None, None]:
    """Score the images of shards; each shard's table comes as soon as it and those before it are complete.

    Scores do not depend on which shards go together beyond the rounding of the arithmetic.

    Args:
        shards: name of each shard and its tables, each of whole samples, with ``sample_id``, ``position``,
            ``modality``, ``text_content``, ``binary_content`` and, where there is one, ``materialize_error``. Read in a
            thread of its own, and scored in another.
        scorer: from :func:`load_scorer`.
        image_scores: gives a shard's stored image scores; needed with ``clip.prescreen``.
        stats: counts that are kept up to date.

    Yields:
        Name and score table of each shard, in the order given; see
        :func:`~interleaved_assets.scoring.clip.samples.clip_schema`.

    Raises:
        OptionError: at once, ``clip.prescreen`` is on and ``image_scores`` is not given.
        SettingsError: a bound of ``clip.prescreen`` is on a score that was not computed; the model's values are not
            finite.
        Exception: whatever the device fails with. The shards that came before stand, and no image is marked for it.
    """
    if scorer.settings.prescreen.is_on and image_scores is None:
        raise OptionError("clip.prescreen has bounds, so image_scores= has to give the scores they are on")
    settings = scorer.settings
    reader = SampleReader(
        settings=settings,
        schema=scorer.schema,
        head_columns=[head_column(name, head) for name, head in settings.heads.items()],
        tokenizer=scorer.tokenizer,
        preprocess=scorer.preprocess,
        image_scores=image_scores,
        on_device=scorer.on_device,
    )
    stream = ScoreStream(reader, scorer.embedder, settings.threads, ClipStats() if stats is None else stats)
    # in a thread of its own, so that the device has work while the caller writes a table
    return prefetch(stream.run(shards), depth=_TABLES_AHEAD)


def score_table(table: pa.Table, scorer: ClipScorer, *, image_scores: pa.Table | None = None) -> pa.Table:
    """:func:`score_shards` for a single table of whole samples, in a notebook or a script."""
    given = None if image_scores is None else lambda _: image_scores
    ((_, scores),) = score_shards([("", [table])], scorer, image_scores=given)
    return scores
