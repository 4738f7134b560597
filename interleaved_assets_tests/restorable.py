"""Projects that are made once for many tests, each of which may change them."""

import hashlib
import os
import shutil
from pathlib import Path


class Restorable:
    """A project that takes long to make, for tests that change it: each of them gets it as it was made.

    It comes back at the same place, because records and Dagster's storage name files by absolute paths. Raw shards and
    outputs come back as the same files, because records hold their inode numbers: they may be replaced and deleted, as
    the project does, and not be written into.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = folder.with_name(f"{folder.name}-kept")
        folder.rename(self._kept)
        self._files = self._read_files()

    def restore(self) -> Path:
        assert self.is_as_made(), "a test has written into a file instead of replacing it"
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        for part in self._kept.iterdir():
            target = self._folder / part.name
            if part.is_dir():
                shutil.copytree(part, target, copy_function=os.link if part.name in ("raw", "out") else shutil.copy2)
            else:
                shutil.copy2(part, target)
        return self._folder

    def is_as_made(self) -> bool:
        """Whether no test has written into a file that it shares with the project as it was made."""
        return self._read_files() == self._files

    def _read_files(self) -> list[tuple[str, int, bytes]]:
        files = [path for path in sorted(self._kept.rglob("*")) if path.is_file()]
        return [(str(path), path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).digest()) for path in files]
