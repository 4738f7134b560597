"""Two small shards whose every figure is known, for the tests of the reports."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.reporting.figures.facts import ShardFacts

Drop = tuple[str, int, str, str, float | None, float | None, str | None]
"""Sample, position, modality, reason, measured, threshold, detail."""


def ledger(drops: Sequence[Drop], stage: str = "filtered") -> pa.Table:
    rows = [dict(zip(LEDGER_SCHEMA.names, (*drop[:3], stage, *drop[3:]), strict=True)) for drop in drops]
    return pa.Table.from_pylist(rows, schema=LEDGER_SCHEMA)


def scores(values: Sequence[tuple[str, int, float | None, float | None]]) -> pa.Table:
    """Sample, position, sharpness and QR area; pictures of 300 by 200 pixels, an error where there is no score."""
    known = [sharpness is not None for _, _, sharpness, _ in values]
    return pa.table(
        {
            "sample_id": [sample_id for sample_id, *_ in values],
            "position": pa.array([position for _, position, *_ in values], pa.int32()),
            "width": pa.array([300 if there else None for there in known], pa.int32()),
            "height": pa.array([200 if there else None for there in known], pa.int32()),
            "aspect_ratio": pa.array([1.5 if there else None for there in known], pa.float64()),
            "sharpness": pa.array([sharpness for _, _, sharpness, _ in values], pa.float64()),
            "qr_area_ratio": pa.array([area for *_, area in values], pa.float64()),
            "score_error": pa.array([None if there else "undecodable_image: 0 bytes" for there in known], pa.string()),
        }
    )


def flyers(prefix: str = "") -> ShardFacts:
    """Six images, of which one is blurred, one has a QR code, one is damaged, and one goes with its sample.

    ``prefix`` comes before all sample ids.
    """
    facts = ShardFacts(
        key="web/flyers|000",
        counts_in=Counts(rows=14, samples=3, images=6),
        counts_out=Counts(rows=9, samples=2, images=2),
        counted_to="final_tars",
        scores=scores(
            [
                ("a", 1, 640.0, 0.0),
                ("a", 2, 41.25, 0.0),
                ("a", 4, 900.0, 0.2),
                ("b", 0, 120.0, 0.0),
                ("b", 1, None, None),
                ("c", 0, 2000.0, 0.01),
            ]
        ),
        ledger=ledger(
            [
                ("a", 2, "image", "sharpness_below", 41.25, 100.0, None),
                ("a", 4, "image", "qr_above", 0.2, 0.05, None),
                ("b", 1, "image", "undecodable_image", None, None, "undecodable_image: 0 bytes"),
                ("b", 0, "image", "sample_dropped", None, None, "dropped with its sample, for the image at position 1"),
                ("b", -1, "metadata", "sample_dropped", None, None, "dropped with its sample"),
            ]
        ),
        errors={"undecodable_image": 1},
    )
    return replace(facts, scores=_prefixed(facts.scores, prefix), ledger=_prefixed(facts.ledger, prefix))


def _prefixed(table: pa.Table | None, prefix: str) -> pa.Table | None:
    assert table is not None
    ids = pc.binary_join_element_wise(prefix, table["sample_id"], "")
    return table.set_column(0, table.schema.field(0), ids)


def guides() -> ShardFacts:
    """Nothing dropped."""
    return ShardFacts(
        key="web/guides",
        counts_in=Counts(rows=4, samples=1, images=2),
        counts_out=Counts(rows=4, samples=1, images=2),
        counted_to="final_tars",
        scores=scores([("g", 1, 300.0, 0.0), ("g", 3, 500.0, 0.0)]),
        ledger=ledger([]),
    )


def with_thumbnails(facts: ShardFacts) -> ShardFacts:
    """``facts`` with a JPEG as the thumbnail of each image that was scored."""
    assert facts.scores is not None
    buffer = io.BytesIO()
    Image.new("RGB", (128, 85), (40, 90, 160)).save(buffer, "JPEG")
    thumbnails = [None if width is None else buffer.getvalue() for width in facts.scores["width"].to_pylist()]
    return replace(facts, scores=facts.scores.append_column("thumbnail", pa.array(thumbnails, pa.binary())))
