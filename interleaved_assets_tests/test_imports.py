"""What loads what: the library half stays free of Dagster and torch."""

import subprocess
import sys

import pytest

HEAVY = ("dagster", "torch", "open_clip")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("interleaved_assets.model", HEAVY),
        ("interleaved_assets.io", HEAVY),
        ("interleaved_assets.scoring.score", HEAVY),
        ("interleaved_assets.selection", HEAVY),
        ("interleaved_assets.pipeline.stages.dag", HEAVY),
        ("interleaved_assets.reporting.dataset_report", HEAVY),
        ("interleaved_assets.cli", HEAVY),
        ("interleaved_assets.defs.build", ("torch", "open_clip")),
    ],
)
def test_importing_one_does_not_load_the_other(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*(name for name in {absent!r} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == []
