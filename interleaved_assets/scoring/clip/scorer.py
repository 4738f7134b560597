"""A loaded model with everything that scoring needs. :func:`load_scorer` loads torch; the import does not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from interleaved_assets.io.storage import StorageOptionsByScheme
from interleaved_assets.model.errors import MissingDependency, SettingsError, how_to_install
from interleaved_assets.scoring.clip.samples import clip_schema
from interleaved_assets.scoring.clip.settings import ClipSettings

if TYPE_CHECKING:
    from interleaved_assets.scoring.clip.embed import Embedder
    from interleaved_assets.scoring.clip.image import Preprocess
    from interleaved_assets.scoring.clip.text import Tokenizer


@dataclass(frozen=True)
class ClipScorer:
    """A loaded model with its heads, tokenizer and preprocessing, made by :func:`load_scorer`."""

    settings: ClipSettings
    embedder: "Embedder"
    tokenizer: "Tokenizer"
    preprocess: "Preprocess"

    @property
    def schema(self) -> pa.Schema:
        """The schema of the score tables; see :func:`~interleaved_assets.scoring.clip.samples.clip_schema`."""
        return clip_schema(self.settings, self.embedder.width)

    def facts(self) -> dict[str, str]:
        """Return device, model, precision and model fingerprint, for the report of a run."""
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
    """Return the scorer of ``settings``. The model is loaded once per process, however often this is called.

    Args:
        settings: the model, its heads and the device.
        options: fsspec options by URL scheme (``{"s3": {…}}``) for checkpoint, configuration and heads.
        is_demo_data: returns whether the data to score is the demo's, the only data that the demo's model knows; called
            only if the model is the demo's.

    Raises:
        MissingDependency: torch or open_clip is not installed.
        SettingsError: device, model, checkpoint or a head is missing, damaged, or does not fit the rest; or the model
            is the demo's and the data is not.
        StorageUnavailable: the storage did not answer.
    """
    try:
        from interleaved_assets.scoring.clip.embed import Embedder
        from interleaved_assets.scoring.clip.heads import load_head
        from interleaved_assets.scoring.clip.image import Preprocess
        from interleaved_assets.scoring.clip.model import load_clip
        from interleaved_assets.scoring.clip.text import Tokenizer
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "torchvision", "open_clip", "safetensors"):
            raise
        raise MissingDependency(
            f"CLIP scoring needs {error.name}, which is not installed here: {how_to_install('clip')}"
        ) from error
    model = load_clip(settings, options)
    if model.is_demo and not settings.allow_demo_model and not is_demo_data():
        raise SettingsError(
            f"clip.pretrained = {settings.pretrained!r} is the demo's model, which knows the demo's drawn scenes only "
            "and would drop nearly every image of other data. Set clip.model and clip.pretrained to a model for your "
            "data (such as model = 'ViT-L-14-quickgelu', pretrained = 'openai', and no model_config_path), or "
            "clip.enabled = false, or clip.allow_demo_model = true to use it all the same."
        )
    heads = [load_head(name, head, model.width, options) for name, head in settings.heads.items()]
    return ClipScorer(
        settings=settings,
        embedder=Embedder(model, settings.batch_size, heads),
        tokenizer=Tokenizer(model.tokenizer, settings.long_text),
        preprocess=Preprocess(model.preprocess_config, model.resizer, settings.max_pixels),
    )
