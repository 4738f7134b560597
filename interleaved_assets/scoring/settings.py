"""Settings of image scoring: the section ``[scoring]`` of ``interleaved.toml``."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from interleaved_assets.scoring.qr import DEFAULT_DETECTOR, QrDetector
from interleaved_assets.scoring.registry import known_scorers
from interleaved_assets.scoring.size import DEFAULT_MAX_PIXELS

# what Pillow refuses whatever we say: a larger setting would promise what cannot be held
_LARGEST_MAX_PIXELS: Final = 2 * DEFAULT_MAX_PIXELS


class ScoringSettings(BaseModel):
    """What is measured of each image, and how. A change makes stored scores stale; thresholds are not here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scorers: tuple[str, ...] = Field(
        default=("sharpness", "qr", "thumbnail"),
        description="What is measured of each image besides its size: sharpness (as NeMo Curator measures it), "
        "sharpness_256 (whatever the resolution; recommended), sharpness_grey, qr, nsfw, a "
        "scorer of your own; thumbnail keeps a small picture for contact sheets. Default sharpness, qr and thumbnail.",
    )
    qr_detector: QrDetector = Field(
        default=DEFAULT_DETECTOR,
        description="What looks for QR codes: zxing+aruco (zxing-cpp, and OpenCV's second detector where zxing-cpp "
        "sees a code that it cannot read), zxing, opencv, or zbar (needs Debian's libzbar0). Default zxing+aruco.",
    )
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
