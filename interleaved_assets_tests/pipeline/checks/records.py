"""Records to judge, made by hand, and what they are judged by."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interleaved_assets.pipeline.run.check import NO_OTHERS, Basis
from interleaved_assets.pipeline.run.record import Counts, OutputFile, Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.documents import project


def record(shard: str = "a", *, rows_in: int = 0, rows_out: int = 0, **facts: Any) -> Record:
    """A record with ``facts``; of the counts only the rows are given."""
    return Record(
        **{
            "stage": "normalized",
            "shard": shard,
            "code_version": "1-x",
            "inputs": {},
            "data_version": "v",
            "outputs": {"rows": OutputFile(uri="a", size=1, checksum="0")},
            "settings": {},
            "counts_in": Counts(rows=rows_in),
            "counts_out": Counts(rows=rows_out),
            **facts,
        }
    )


def basis_of(folder: Path, text: str = "", stage: str = "normalized", others: Mapping[str, float] = NO_OTHERS) -> Basis:
    """What a record of ``stage`` is judged by in a project with these settings."""
    settings = project(folder, text)
    return Basis(settings, stage_dag(settings)[stage], others)
