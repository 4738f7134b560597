"""Images and words that earlier filters left of a sample, as bounds on whole samples."""

from interleaved_assets.scoring.protocol.filter import Bound, Display, SampleFilter
from interleaved_assets.scoring.protocol.scorer import Scorer, register_scorer

_FROM_ZERO = {"ge": 0}
register_scorer(
    Scorer(
        "counts",
        {},
        filters=(
            SampleFilter(
                "images",
                lambda samples: samples.images.astype(float),
                minimum=Bound("min_images", "Fewest images of a sample, from 0.", dtype=int, limits=_FROM_ZERO),
                maximum=Bound("max_images", "Most images of a sample, from 0.", dtype=int, limits=_FROM_ZERO),
                display=Display("Images of a sample", "images", scale="any"),
            ),
            SampleFilter(
                "words",
                lambda samples: samples.words.astype(float),
                minimum=Bound("min_words", "Fewest words of a sample, from 0.", dtype=int, limits=_FROM_ZERO),
                maximum=Bound("max_words", "Most words of a sample, from 0.", dtype=int, limits=_FROM_ZERO),
                display=Display("Words of a sample", "words", scale="any"),
            ),
        ),
        section="selection",
        after="clip",
    )
)
