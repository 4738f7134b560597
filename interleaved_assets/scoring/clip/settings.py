"""The ``[clip]`` section of the settings: model, device, handling of texts, and heads. It loads no torch."""

from collections.abc import Iterator
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from interleaved_assets.scoring.images.size import DEFAULT_MAX_PIXELS
from interleaved_assets.scoring.protocol.filter import Bound, Bounds, ImageFilter, settings_of, with_bounds
from interleaved_assets.scoring.protocol.registry import BUILT_IN
from interleaved_assets.scoring.protocol.scorer import taken_columns

HeadKind = Literal["aesthetic", "nsfw", "own"]
Activation = Literal["none", "relu", "gelu"]
Squash = Literal["none", "sigmoid"]

HEAD_COLUMNS: Final = {"aesthetic": "aesthetic_score", "nsfw": "nsfw_clip_score"}
"""Columns of the kinds of head that selection has filters for. A head of kind ``own`` fills a column with its own
name."""

_MOST: Final = 2**31 - 1
LOCAL_DIR_PREFIX: Final = "local-dir:"
_CHECKPOINT_ENDINGS: Final = (".pt", ".pth", ".bin", ".ckpt", ".npz", ".safetensors")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)


class HeadSettings(_Section):
    """One head on the image embedding: a stack of linear layers that ends in one number."""

    path: str = Field(min_length=1)
    """File or URL of the head's state dict, .pth (read with weights_only) or .safetensors. No default."""
    kind: HeadKind = "own"
    """aesthetic fills aesthetic_score, nsfw fills nsfw_clip_score, own fills a column named as the head. Default
    own."""
    activation: Activation | None = None
    """Function between the linear layers: none, relu or gelu. Default none, except relu for kind nsfw."""
    output: Squash | None = None
    """Function after the last layer: none or sigmoid. Default none, except sigmoid for kind nsfw."""

    @property
    def hidden_activation(self) -> Activation:
        """Return :attr:`activation`, or the kind's default."""
        return self.activation or ("relu" if self.kind == "nsfw" else "none")

    @property
    def output_squash(self) -> Squash:
        """Return :attr:`output`, or the kind's default."""
        return self.output or ("sigmoid" if self.kind == "nsfw" else "none")


_OF_IMAGES: Final = tuple(
    judge
    for scorer in BUILT_IN
    if scorer.section == "scoring"
    for judge in scorer.filters
    if isinstance(judge, ImageFilter)
)
"""The filters on scores that are measured before CLIP's."""


class PrescreenSettings(with_bounds(_Section, _OF_IMAGES, defaults=False)):  # type: ignore[misc]  # fields of the scores
    """Bounds on the stored cheap scores, by the names that selection has for them; an image outside is not embedded.

    They are off by default. They do not depend on the bounds of ``[selection]``: stored CLIP scores must not change
    with a filter's threshold. An image whose cheap score is missing is embedded.
    """

    def bounds(self) -> Iterator[tuple[ImageFilter, Bound, Bounds]]:
        """Yield the bounds that are set, each with its filter and its setting."""
        for judge in _OF_IMAGES:
            for bound in settings_of(judge):
                if (value := getattr(self, bound.setting)) is not None:
                    is_minimum = bound is judge.minimum
                    yield judge, bound, Bounds(value if is_minimum else None, None if is_minimum else value)

    @property
    def is_on(self) -> bool:
        """True if any bound is set."""
        return any(self.bounds())


class ClipSettings(_Section):
    """Settings of the comparison of images with the texts of their sample."""

    enabled: bool = False
    """Compute CLIP scores. Default false."""
    model: str = Field(default="ViT-L-14-quickgelu", min_length=1)
    """Name of an open_clip model, also hf-hub:<repository> or local-dir:<folder>; a label only where model_config_path
    is given. Default ViT-L-14-quickgelu."""
    pretrained: str = "openai"
    """Weights: a tag that open_clip knows for the model, or the file or URL of a checkpoint, known by a slash or by an
    ending such as .pt; not used with hf-hub: and local-dir:. Default openai."""
    allow_demo_model: bool = False
    """Let the demo's model, which knows the demo's drawn scenes only, judge other data. Default false."""
    model_config_path: str | None = None
    """File or URL of a JSON with an open_clip model configuration of your own. Default none: the one that open_clip has
    for the model."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU if there is one, else the CPU; cuda fails without a GPU. Default auto."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Arithmetic of the model. auto: bf16 on a GPU (fp16 if it lacks bf16), fp32 on a CPU. Default auto."""
    resize: Literal["auto", "pillow", "torch", "reduced"] = "auto"
    """Library that scales images down: pillow, bit for bit as open_clip does, or torch, nine times as fast, about one
    pixel in 250 off by one grey level. reduced: torch, and JPEGs of over four times the model's input are decoded at a
    fraction of their size. auto: pillow in fp32, else torch. Default auto."""
    batch_size: int | None = Field(default=None, ge=1, le=_MOST)
    """Images, and texts, given to the model at once. Halved when memory runs out. Default none: 256 on a GPU, 32 on a
    CPU."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Threads that decode and scale images. Default none: one for each processor that this process may use."""
    long_text: Literal["truncate", "window"] = "truncate"
    """Handling of texts beyond the model's context: truncate takes their beginning, window takes every piece of the
    context's length, and the best piece counts. Default truncate."""
    prescreen: PrescreenSettings = Field(default_factory=PrescreenSettings)
    """Bounds on the cheap scores beyond which an image is not scored. Default none."""
    heads: dict[str, HeadSettings] = Field(default_factory=dict)
    """Heads on the image embedding, by name, each with path, kind, activation and output; docs/clip.md explains them.
    Default none."""
    keep_embeddings: bool = False
    """Keep the image embeddings in the score file, as float16. Default false."""
    max_pixels: int = Field(default=DEFAULT_MAX_PIXELS, ge=1, le=_MOST)
    """Width x height above which an image is not decoded. Default 89478485."""

    @property
    def head_columns(self) -> dict[str, str]:
        """Return the columns of the score table that the heads fill, in their order, each with its head's name."""
        return {HEAD_COLUMNS.get(head.kind, name): name for name, head in self.heads.items()}

    @property
    def has_weights(self) -> bool:
        """True if the model's name says where its weights are, so that ``pretrained`` is not used."""
        return self.model.startswith((LOCAL_DIR_PREFIX, "hf-hub:"))

    @property
    def checkpoint(self) -> str | None:
        """Path or URL of the checkpoint if ``pretrained`` is one; None if it is a tag or not used."""
        is_file = "/" in self.pretrained or self.pretrained.endswith(_CHECKPOINT_ENDINGS)
        return self.pretrained if is_file and not self.has_weights else None

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        for kind, column in HEAD_COLUMNS.items():
            names = [name for name, head in self.heads.items() if head.kind == kind]
            if len(names) > 1:
                raise ValueError(f"heads {names} are all of kind {kind}, and there is one column {column}: keep one")
        taken = taken_columns()
        for name, head in self.heads.items():
            if head.kind == "own" and (name in taken or not name.isidentifier()):
                raise ValueError(
                    f"head {name!r}: an own head names its column, so it needs a name that is free and a word"
                )
        return self
