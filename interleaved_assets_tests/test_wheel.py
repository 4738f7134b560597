"""The wheel holds the package alone, and works where nothing else of the repository is."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from interleaved_assets_tests.io.tars import encoded, picture, write_tar

REPOSITORY = Path(__file__).parents[1]
CONVERT = """
import sys, interleaved_assets
from interleaved_assets.io import InterleavedParquetReader, InterleavedParquetWriter, InterleavedWebdatasetReader

(batch,) = InterleavedWebdatasetReader(sys.argv[1], materialize_on_read=True)
(path,) = InterleavedParquetWriter(sys.argv[2]).write(batch)
(again,) = InterleavedParquetReader(path)
assert again.to_pyarrow().equals(batch.to_pyarrow())
print(interleaved_assets.__file__, again.num_items, again.count(modality="image"))
"""

pytestmark = pytest.mark.system  # builds and installs a package


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what is packed and of the tests, which must not be."""
    source = tmp_path_factory.mktemp("source")
    for name in ("interleaved_assets", "interleaved_assets_tests"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "Makefile"):
        shutil.copy(REPOSITORY / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", source / "dist", source], check=True)
    (found,) = (source / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def run(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a command in an empty folder, with the installed wheel in front of everything else; gives what it prints."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("elsewhere")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(install, check=True)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("INTERLEAVED_", "DAGSTER_"))
    }
    environment |= {"PYTHONPATH": str(site), "PATH": f"{site / 'bin'}:{environment['PATH']}"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    return run


def test_it_holds_every_file_of_the_package_and_none_of_the_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = {name.partition("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"interleaved_assets"}
    paths = (REPOSITORY / "interleaved_assets").rglob("*.*")
    files = {path.relative_to(REPOSITORY).as_posix() for path in paths if "__pycache__" not in path.parts}
    assert {name for name in names if name.startswith("interleaved_assets/")} == files
    licence = [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
    assert zipfile.ZipFile(wheel).read(*licence) == (REPOSITORY / "LICENSE").read_bytes()
    assert {"interleaved_assets/py.typed", "interleaved_assets/reporting/templates/dataset_report.css"} <= files


def test_it_converts_a_shard(run: Callable[..., str], tmp_path: Path) -> None:
    document = {"texts": ["a text", None], "images": [None, "a.1.png"], "url": "u"}
    shard = write_tar(tmp_path / "a.tar", ("a.json", document), ("a.1.png", encoded(picture(1))))
    file, *found = run(sys.executable, "-c", CONVERT, shard, tmp_path / "out").split()
    assert not Path(file).is_relative_to(REPOSITORY)
    assert found == ["1", "1"]


def test_its_command_runs(run: Callable[..., str]) -> None:
    text = run("interleaved", "--help")
    assert text.startswith("Usage: interleaved")
    assert {"trace", "what-if", "settings"} <= set(text.replace(",", " ").replace("{", " ").split())


def test_its_demo_needs_no_file_of_the_repository(run: Callable[..., str]) -> None:
    text = run("interleaved", "demo")
    assert "11 demo shards in " in text
    assert "dagster dev -m interleaved_assets.definitions" in text
    assert "│ complete │     11 │" in run("interleaved", "status")
