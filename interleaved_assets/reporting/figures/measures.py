"""The display of each score, as its filter declares it, with the bounds that selection applies."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.model.columns import METADATA_POSITION
from interleaved_assets.model.digits import bound
from interleaved_assets.scoring.protocol.filter import (
    Bounds,
    Display,
    Filter,
    ImageFilter,
    Side,
    TextFilter,
    outside,
    sign_of_kept,
)
from interleaved_assets.scoring.protocol.registry import SIZE, document_columns, document_numbers, find_scorer
from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.protocol.values import Values
from interleaved_assets.selection.filters import find_filter, known_filters, text_filter_name
from interleaved_assets.selection.settings import SelectionSettings

SIZE_COLUMNS: Final = frozenset(find_scorer(SIZE).columns)
"""Scores that follow from the size of an image. The size is shown instead."""
CLIP_TEXT: Final = "clip_text_position"
"""The column with the position of the text that CLIP found nearest to an image."""


@dataclass(frozen=True)
class Measure:
    """The value that a filter compares, and the bounds that it has in the settings.

    Attributes:
        judge: the filter, which declares the display of the value.
        minimum: smallest kept value; None for no bound.
        maximum: largest kept value, or, if the filter's maximum is open, the value that kept values are below; None for
            no bound.
    """

    judge: Filter
    minimum: float | None = None
    maximum: float | None = None

    @property
    def filter(self) -> str:
        """Name of the filter; its reasons in the ledger are ``<filter>_below`` and ``<filter>_above``."""
        return self.judge.name

    @property
    def shown(self) -> Display:
        """Display of the value; if the filter declares none, one with the filter's name and any range."""
        return self.judge.display or Display(self.filter, self.filter, scale="any")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the scores table that the value is computed from; none for a filter on samples."""
        return self.judge.columns if isinstance(self.judge, ImageFilter) else ()

    @property
    def unit(self) -> Literal["image", "text", "document", "sample"]:
        """The unit that has a value: an image, a text, a document, or a sample of which rows are left."""
        if isinstance(self.judge, TextFilter):
            return self.judge.of
        return "image" if isinstance(self.judge, ImageFilter) else "sample"

    @property
    def has_bounds(self) -> bool:
        """True if the filter can drop anything."""
        return self.minimum is not None or self.maximum is not None

    @property
    def is_folded(self) -> bool:
        """True for a score of documents without a bound: there are many of them."""
        return self.unit == "document" and not self.has_bounds

    @property
    def is_whole(self) -> bool:
        """True for a score of documents or texts whose values are whole numbers."""
        judge = self.judge
        if not isinstance(judge, TextFilter) or judge.column not in document_columns():
            return False
        return str(document_columns()[judge.column].columns[judge.column]) == "int64"

    @property
    def axis(self) -> str:
        """Title of the axis of its values: the label and the unit."""
        return f"{self.shown.label} ({self.shown.unit})" if self.shown.unit else self.shown.label

    def sign(self, side: Side) -> str:
        """Return the sign between a value that a bound keeps and the bound."""
        return sign_of_kept(side, open_maximum=self.judge.open_maximum)

    @property
    def rule(self) -> str:
        """The bounds as text, such as ``keep ≥ 100``; ``no bound`` if there are none."""
        parts = []
        if self.minimum is not None:
            parts.append(f"{self.sign('minimum')} {bound(self.minimum)}")
        if self.maximum is not None:
            parts.append(f"{self.sign('maximum')} {bound(self.maximum)}")
        return f"keep {' and '.join(parts)}" if parts else "no bound"

    def values(self, scores: pa.Table) -> Values | None:
        """Return the value for each row of ``scores``, NaN if a score is missing; None if a column is missing."""
        if not isinstance(self.judge, ImageFilter) or not set(self.columns) <= set(scores.column_names):
            return None
        return self.judge.value([scores[name].cast(pa.float64()).to_numpy() for name in self.columns])

    def values_of_texts(self, documents: pa.Table) -> Values | None:
        """Return the value of each document or text in their scores, NaN if missing; None if the column is missing."""
        judge = self.judge
        if not isinstance(judge, TextFilter) or judge.column not in documents.column_names:
            return None
        is_document = pc.equal(documents["position"], METADATA_POSITION)
        wanted = is_document if judge.of == "document" else pc.invert(is_document)
        values = documents[judge.column].filter(wanted).cast(pa.float64())
        return np.asarray(pc.fill_null(values, np.nan).to_numpy())

    def keeps(self, values: Values) -> NDArray[np.bool_]:
        """Return which of ``values`` the bounds keep, one bool each; NaN is never kept."""
        below, above = outside(self.judge, values, Bounds(self.minimum, self.maximum))
        return ~(np.isnan(values) | below | above)


def measure_of(name: str, selection: SelectionSettings) -> Measure:
    """Return the measure of the filter ``name``, with the bounds it has in ``selection``."""
    return Measure(selection.find(name), *selection.bounds(name))


def measures_of(selection: SelectionSettings, documents: DocumentSettings | None = None) -> list[Measure]:
    """Return the filters with bounds, in their order, and then the other scores of images, without lists of strings.

    With ``documents``, the other scores of documents that these scorers measure follow. Those of texts do not: there
    are many texts, and the report holds every value.
    """
    names = [name for name in selection.active_filters() if selection.bounds(name) != (None, None)]
    others = {name: find_filter(name) for name in known_filters() if name not in names}
    names += [
        name
        for name, judge in others.items()
        if isinstance(judge, ImageFilter) and not (judge.display and judge.display.only_bounded)
    ]
    if documents is not None:
        of_documents = (text_filter_name("document", name) for name in document_numbers(documents))
        names += [name for name in of_documents if name not in names]
    return [measure_of(name, selection) for name in names]
