"""Documents whose ``_interleaved`` has columns of types that this package never writes."""

import base64
from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets_tests.io.rows.test_value_bytes import COUNT, SHARING
from interleaved_assets_tests.io.tars import rows, write_tar


@pytest.mark.parametrize("name", SHARING)
def test_a_document_whose_values_may_share_bytes_is_refused(tmp_path: Path, name: str) -> None:
    cells = pa.table(
        {
            "position": pa.array([-1, *range(COUNT - 1)], pa.int32()),
            "modality": ["metadata"] + ["text"] * (COUNT - 1),
            "c": SHARING[name],
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, cells.schema) as stream:
        stream.write_table(cells)
    stated = {"version": 1, "rows": base64.b64encode(sink.getvalue()).decode()}
    body = {"texts": ["t"] * (COUNT - 1), "images": [None] * (COUNT - 1), "_interleaved": stated}
    uri = write_tar(tmp_path / "a.tar", ("a.json", body))
    first, *texts = rows(uri)
    assert first["materialize_error"].startswith("invalid_json: _interleaved has column 'c' of type ")
    assert [row["text_content"] for row in texts] == ["t"] * (COUNT - 1)
