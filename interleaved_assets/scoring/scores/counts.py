"""Images and words that earlier filters left of a sample, as bounds on whole samples."""

from interleaved_assets.scoring.protocol.filter import Bound, Display, SampleCounts, SampleFilter
from interleaved_assets.scoring.protocol.scorer import Scorer, register_scorer
from interleaved_assets.scoring.protocol.values import Values


def _images(samples: SampleCounts) -> Values:
    return samples.images.astype(float)


def _words(samples: SampleCounts) -> Values:
    return samples.words.astype(float)


_FROM_ZERO = {"ge": 0}
register_scorer(
    Scorer(
        "counts",
        {},
        filters=(
            SampleFilter(
                "images",
                _images,
                minimum=Bound("min_images", "Fewest images of a sample, from 0.", dtype=int, limits=_FROM_ZERO),
                maximum=Bound("max_images", "Most images of a sample, from 0.", dtype=int, limits=_FROM_ZERO),
                display=Display("Images of a sample", "images", scale="any"),
            ),
            SampleFilter(
                "words",
                _words,
                minimum=Bound("min_words", "Fewest words of a sample, from 0.", dtype=int, limits=_FROM_ZERO),
                maximum=Bound("max_words", "Most words of a sample, from 0.", dtype=int, limits=_FROM_ZERO),
                display=Display("Words of a sample", "words", scale="any"),
            ),
        ),
        section="selection",
        after="clip",
    )
)
