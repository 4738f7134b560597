from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.build import build_definitions
from interleaved_assets_tests.documents import project

MODEL = '[clip]\nenabled = true\nmodel = "ViT-B-32"\npretrained = "openai"\n'


@pytest.mark.parametrize("text", ["", MODEL], ids=["without a model", "with a model"])
def test_the_definitions_load_as_a_code_location(tmp_path: Path, text: str) -> None:
    dg.Definitions.validate_loadable(build_definitions(project(tmp_path, text)))
