"""Hand-written rows and scores for the tests of selection."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

Row = tuple[str, int, str]
"""Sample id, position, modality."""


def rows_of(rows: Sequence[Row], words: Mapping[tuple[str, int], int] | None = None) -> pa.Table:
    """Rows as ``select`` takes them; a text has 10 words unless ``words`` says otherwise."""
    words = words or {}
    return pa.table(
        {
            "sample_id": pa.array([row[0] for row in rows], pa.string()),
            "position": pa.array([row[1] for row in rows], pa.int32()),
            "modality": pa.array([row[2] for row in rows], pa.string()),
            "words": pa.array([words.get(row[:2], 10) if row[2] == "text" else None for row in rows], pa.int64()),
        }
    )


def document(sample_id: str, kinds: str, metadata: bool = True) -> list[Row]:
    """A sample by letters: ``t`` a text, ``i`` an image, ``x`` a table, ``.`` a gap; a metadata row in front."""
    names = {"t": "text", "i": "image", "x": "table"}
    content = [(sample_id, place, names[kind]) for place, kind in enumerate(kinds) if kind != "."]
    return [(sample_id, -1, "metadata"), *content] if metadata else content


def scores_of(scores: Mapping[tuple[str, int], Mapping[str, object]]) -> pa.Table:
    """Scores by (sample id, position). What is not said is that of a square, sharp picture without QR codes."""
    good = {
        "width": 500,
        "height": 500,
        "aspect_ratio": 1.0,
        "sharpness": 1000.0,
        "qr_area_ratio": 0.0,
        "score_error": None,
    }
    every = [{**good, **given} for given in scores.values()]
    columns: dict[str, pa.Array] = {
        "sample_id": pa.array([key[0] for key in scores], pa.string()),
        "position": pa.array([key[1] for key in scores], pa.int32()),
    }
    for name in dict.fromkeys(name for given in (good, *every) for name in given):
        kind = pa.string() if name.endswith("_error") else pa.int32() if name in ("width", "height") else pa.float64()
        columns[name] = pa.array([given.get(name) for given in every], kind)
    return pa.table(columns)


def kept(rows: pa.Table, keep: pa.BooleanArray) -> list[tuple[str, int]]:
    """Keys of the rows that stay."""
    left = rows.filter(keep)
    return list(zip(left["sample_id"].to_pylist(), left["position"].to_pylist(), strict=True))


def reasons(ledger: pa.Table) -> dict[tuple[str, int], str]:
    """Reason of each dropped row, by key; fails where two rows share one."""
    keys = list(zip(ledger["sample_id"].to_pylist(), ledger["position"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, ledger["reason"].to_pylist(), strict=True))
