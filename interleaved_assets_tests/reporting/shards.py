"""Two small shards whose every figure is known, for the tests of the reports."""

import io
from collections.abc import Sequence

import pyarrow as pa
from PIL import Image

from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.reporting.facts import ImageKey, ShardFacts

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


def flyers() -> ShardFacts:
    """Six images, of which one is blurred, one has a QR code, one is damaged, and one goes with its sample."""
    return ShardFacts(
        key="web/flyers|000",
        rows_in=14,
        samples_in=3,
        images_in=6,
        rows_kept=9,
        samples_kept=2,
        images_kept=2,
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


def guides() -> ShardFacts:
    """Nothing dropped."""
    return ShardFacts(
        key="web/guides",
        rows_in=4,
        samples_in=1,
        images_in=2,
        rows_kept=4,
        samples_kept=1,
        images_kept=2,
        counted_to="final_tars",
        scores=scores([("g", 1, 300.0, 0.0), ("g", 3, 500.0, 0.0)]),
        ledger=ledger([]),
    )


def pictures(keys: Sequence[ImageKey]) -> dict[ImageKey, bytes | None]:
    """A picture for each key, none for ``("b", 1)``."""
    buffer = io.BytesIO()
    Image.new("RGB", (300, 200), (40, 90, 160)).save(buffer, "JPEG")
    return {key: None if key == ("b", 1) else buffer.getvalue() for key in keys}
