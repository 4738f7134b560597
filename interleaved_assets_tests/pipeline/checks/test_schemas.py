from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.checks.schema_canonical import judge_schema
from interleaved_assets.pipeline.run.check import Basis
from interleaved_assets.pipeline.run.counts import column_facts
from interleaved_assets.scoring.clip.samples import clip_schema
from interleaved_assets.scoring.protocol.registry import scores_schema
from interleaved_assets_tests.pipeline.checks.records import basis_of, record

ROWS = pa.schema([*INTERLEAVED_SCHEMA, pa.field("url", pa.large_string())])


CLIP = "[clip]\nenabled = true\nmodel = 'm'\npretrained = 'p'\nkeep_embeddings = true\n"


@pytest.fixture
def basis(tmp_path: Path) -> Basis:
    return basis_of(tmp_path)


def changed(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    return schema.set(schema.get_field_index(field.name), field)


def test_reserved_columns_then_passthrough_columns(basis: Basis) -> None:
    verdict = judge_schema(record(**column_facts(ROWS)), basis)
    assert (verdict.passed, verdict.summary) == (True, "8 columns as expected, 1 passthrough")
    assert verdict.figures == {"columns": 9, "columns_expected": 8, "column_problems": 0}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (changed(ROWS, pa.field("position", pa.int64(), nullable=False)), "position is int64, not int32"),
        (changed(ROWS, pa.field("binary_content", pa.binary())), "binary_content is binary, not large_binary"),
        (changed(ROWS, pa.field("sample_id", pa.string())), "sample_id may be null"),
        (changed(ROWS, pa.field("text_content", pa.string(), nullable=False)), "text_content may not be null"),
        (ROWS.remove(ROWS.get_field_index("source_ref")), "source_ref is missing"),
        (
            pa.schema([ROWS.field("url"), *INTERLEAVED_SCHEMA]),
            "order is url, sample_id, position, modality, content_type, text_content, binary_content, source_ref",
        ),
    ],
)
def test_rows_of_another_schema(basis: Basis, schema: pa.Schema, problem: str) -> None:
    verdict = judge_schema(record(**column_facts(schema)), basis)
    assert (verdict.passed, verdict.severity, verdict.summary) == (False, "ERROR", problem)
    assert verdict.figures["column_problems"] == 1


def test_score_tables(tmp_path: Path) -> None:
    basis = basis_of(tmp_path, stage="image_scores")
    scores = scores_schema(basis.settings.scoring)
    assert judge_schema(record(**column_facts(scores)), basis).passed
    more = judge_schema(record(**column_facts(scores.append(pa.field("own", pa.float64())))), basis)
    assert (more.passed, more.summary) == (False, "own is not expected")
    less = judge_schema(record(**column_facts(changed(scores, pa.field("sharpness", pa.float32())))), basis)
    assert (less.passed, less.summary) == (False, "sharpness is float, not double")


@pytest.mark.parametrize("width", [2, 768])
def test_clip_score_tables_of_any_width(tmp_path: Path, width: int) -> None:
    basis = basis_of(tmp_path, CLIP, "clip_scores")
    scores = clip_schema(basis.settings.clip, width)
    assert judge_schema(record(**column_facts(scores)), basis).passed
    wide = changed(scores, pa.field("embedding", pa.list_(pa.float32(), width)))
    verdict = judge_schema(record(**column_facts(wide)), basis)
    assert (verdict.passed, verdict.figures["column_problems"]) == (False, 1)
    assert verdict.summary.startswith("embedding is fixed_size_list")


def test_a_record_that_names_no_columns_does_not_pass(basis: Basis) -> None:
    assert not judge_schema(record(), basis).passed
