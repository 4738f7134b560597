"""Settings of image scoring: the section ``[scoring]`` of ``interleaved.toml``."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from interleaved_assets.scoring.images.options import DEFAULT_MAX_PIXELS
from interleaved_assets.scoring.protocol.registry import BUILT_IN, known_scorers

# Pillow refuses images with more pixels, so a higher setting would have no effect
_LARGEST_MAX_PIXELS: Final = 2 * DEFAULT_MAX_PIXELS
_BUILT_IN: Final = ", ".join(f"{one.name} ({one.about})" if one.about else one.name for one in BUILT_IN if one.prepare)


class _ScorerSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    scorers: tuple[str, ...] = Field(
        default=("sharpness", "qr", "thumbnail"),
        description="Scorers that run on each image besides its size: "
        f"{_BUILT_IN}, or your own. Default sharpness, qr and thumbnail.",
    )


_OPTIONS: Final[dict[str, Any]] = {name: option for scorer in BUILT_IN for name, option in scorer.options.items()}


class ScoringSettings(create_model("_Options", __base__=_ScorerSettings, **_OPTIONS)):  # type: ignore[misc]  # of scores
    """The scorers and their options. A change makes stored scores stale; thresholds are settings of selection."""

    max_pixels: int = Field(
        default=DEFAULT_MAX_PIXELS,
        ge=1,
        le=_LARGEST_MAX_PIXELS,
        description="Pixels (width x height) above which an image is not decoded and gets the error too_many_pixels, "
        f"1 to {_LARGEST_MAX_PIXELS}. Default {DEFAULT_MAX_PIXELS}, a decoded image of 256 MiB.",
    )

    @field_validator("scorers")
    @classmethod
    def _scorers_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in names if name not in known_scorers()]
        if unknown:
            raise ValueError(f"no scorer named {', '.join(unknown)}; there are {', '.join(known_scorers())}")
        if len(set(names)) != len(names):
            raise ValueError("a scorer is named twice")
        return names
