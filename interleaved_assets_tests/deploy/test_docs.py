"""docs/deploy against what is there: paths, variables, one page for each folder of deploy/."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted((REPOSITORY / "docs/deploy").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_path_it_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = set(re.findall(r"(?:deploy|interleaved_assets|interleaved_assets_tests)/[\w./-]*\w", text))
    assert {path for path in paths if not (REPOSITORY / path).exists()} == set()
    links = re.findall(r"\]\(([\w./-]+)\)", text)
    assert {link for link in links if not (page.parent / link).exists()} == set()


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
