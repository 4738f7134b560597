"""docs/deploy against deploy/: required variables, one page for each folder. test_docs.py checks the paths."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["postgres", "s3-logs", "ray", "docker", "kubernetes", "proxy"])
def test_every_folder_has_its_page(folder: str) -> None:
    assert f"({folder}.md)" in (REPOSITORY / "docs/deploy/README.md").read_text(encoding="utf-8")
    assert (REPOSITORY / "deploy" / folder).is_dir()


@pytest.mark.parametrize(
    ("page", "file"),
    [
        ("postgres", "postgres/dagster.yaml"),
        ("s3-logs", "s3-logs/dagster.yaml"),
        ("proxy", "proxy/Caddyfile"),
        ("ray", "ray/start.sh"),
    ],
)
def test_every_variable_that_must_be_set_is_on_the_page(page: str, file: str) -> None:
    text = (REPOSITORY / "deploy" / file).read_text(encoding="utf-8")
    required = set(re.findall(r"env: (\w+)", text)) | set(re.findall(r"\{\$(\w+)\}", text))
    required |= set(re.findall(r"\$\{#(\w+)\}", text))
    assert required
    shown = (REPOSITORY / f"docs/deploy/{page}.md").read_text(encoding="utf-8")
    assert {name for name in required if name not in shown} == set()
