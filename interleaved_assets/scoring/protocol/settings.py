"""Settings of the scorers: the sections ``[scoring]`` (images) and ``[documents]`` (texts) of ``interleaved.toml``."""

from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from interleaved_assets.scoring.images.size import DEFAULT_MAX_PIXELS
from interleaved_assets.scoring.protocol.registry import BUILT_IN, known_scorers
from interleaved_assets.scoring.protocol.scorer import Section

# Pillow refuses images with more pixels, so a higher setting would have no effect
_LARGEST_MAX_PIXELS: Final = 2 * DEFAULT_MAX_PIXELS


def _built_in(section: Section) -> str:
    """Return the names of the built-in scorers of a section, with a note on each."""
    scorers = [one for one in BUILT_IN if one.prepare and one.section == section]
    return ", ".join(f"{one.name} ({one.about})" if one.about else one.name for one in scorers)


def _options(section: Section) -> dict[str, Any]:
    """Return the options of the built-in scorers of a section, as fields."""
    return {name: option for one in BUILT_IN if one.section == section for name, option in one.options.items()}


class ScorerSettings(BaseModel):
    """The scorers that are turned on, and their options: what the two sections have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    section: ClassVar[Section]

    scorers: tuple[str, ...]

    @field_validator("scorers", check_fields=False)
    @classmethod
    def _scorers_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = known_scorers(cls.section)
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"no scorer named {', '.join(unknown)}; there are {', '.join(known)}")
        if len(set(names)) != len(names):
            raise ValueError("a scorer is named twice")
        return names


class _ImageScorers(ScorerSettings):
    section = "scoring"

    scorers: tuple[str, ...] = Field(
        default=("sharpness", "qr", "thumbnail"),
        description="Scorers that run on each image besides its size: "
        f"{_built_in('scoring')}, or your own. Default sharpness, qr and thumbnail.",
    )


class _TextScorers(ScorerSettings):
    section = "documents"

    scorers: tuple[str, ...] = Field(
        default=("words",),
        description="Scorers that run on the texts of each document, besides words, which always runs: "
        f"{_built_in('documents')}, or your own; docs/text-scores.md lists their columns. Default words.",
    )


class ScoringSettings(create_model("_Options", __base__=_ImageScorers, **_options("scoring"))):  # type: ignore[misc]
    """The scorers and their options. A change makes stored scores stale; thresholds are settings of selection."""

    max_pixels: int = Field(
        default=DEFAULT_MAX_PIXELS,
        ge=1,
        le=_LARGEST_MAX_PIXELS,
        description="Pixels (width x height) above which an image is not decoded and gets the error too_many_pixels, "
        f"1 to {_LARGEST_MAX_PIXELS}. Default {DEFAULT_MAX_PIXELS}, a decoded image of 256 MiB.",
    )


class DocumentSettings(create_model("_Options", __base__=_TextScorers, **_options("documents"))):  # type: ignore[misc]
    """The scorers of texts and their options. A change makes stored scores of texts stale, and no others."""
