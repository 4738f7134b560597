"""A disk that is full, really: a small filesystem in memory, in a namespace of its own, in a process of its own."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from interleaved_assets_tests.documents import good_shard, project

MOUNT = ("unshare", "--user", "--map-root-user", "--mount")
RUN = """
import sys
from pathlib import Path
from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import load_settings
settings = load_settings(Path(sys.argv[1]))
for stage in list(stage_dag(settings).values())[: int(sys.argv[2])]:
    try:
        take_through(stage, "a", settings)
    except StorageError as error:
        print(stage.name, "|", error)
        break
root = Path(settings.storage.output_root)
print("left:", *sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()))
print("scratch:", *Path(sys.argv[3]).iterdir())
"""


def can_mount() -> bool:
    try:
        return not subprocess.run([*MOUNT, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode
    except FileNotFoundError:
        return False


needs_mount = pytest.mark.skipif(not can_mount(), reason="the system lets this user mount nothing in a namespace")


def run_on_full_disk(folder: Path, full: Path, size: int, stages: int) -> list[str]:
    """What :data:`RUN` prints where ``full`` is a filesystem of ``size`` KiB; the scratch folder is ``scratch``."""
    scratch = folder / "scratch"
    for each in (full, scratch):
        each.mkdir(exist_ok=True)
    mount = f'mount -t tmpfs -o size={size}k none "$1" && shift && exec "$@"'
    command = [sys.executable, "-c", RUN, str(folder / "interleaved.toml"), str(stages), str(scratch)]
    done = subprocess.run(
        [*MOUNT, "env", f"TMPDIR={scratch}", "sh", "-c", mount, "sh", str(full), *command],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.mark.system
@needs_mount
def test_a_full_scratch_disk(tmp_path: Path) -> None:
    project(tmp_path)
    tar = good_shard(tmp_path / "a.tar", seed=1)
    packed = tmp_path / "raw" / "a.tar.gz"
    packed.write_bytes(gzip.compress(tar.read_bytes()))
    full = tmp_path / "scratch"
    (tmp_path / "out").mkdir()
    assert run_on_full_disk(tmp_path, full, size=16, stages=1) == [
        f"normalized | cannot copy {packed} to the scratch folder {full}: No space left on device. Free some space "
        "there, or set the environment variable TMPDIR to a folder with more.",
        "left:",
        "scratch:",
    ]


@needs_mount
def test_a_full_disk_of_outputs(tmp_path: Path) -> None:
    project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    said, left, scratch = run_on_full_disk(tmp_path, tmp_path / "out", size=96, stages=5)
    stage, _, error = said.partition(" | ")
    assert stage == "filtered"
    assert error.startswith(f"cannot write {tmp_path}/out/")
    assert error.endswith(": No space left on device. Free some space, or write elsewhere.")
    # of the stage that failed there is no record, and no file that is half written
    stages = ("normalized", "image_scores")
    records = {f"records/{name}/a.json" for name in stages}
    assert set(left.split()[1:]) >= records
    assert not [name for name in left.split() if name.endswith(".tmp") or "records/filtered" in name]
    assert scratch == "scratch:"
