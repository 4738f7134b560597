"""A storage that is neither local nor an object store, as a network filesystem behind fsspec: ``elsewhere:///folder/a``.

Its files are those of the machine, so that tests look at them as they are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

_watching: list[Callable[[str, str], None]] = []


class Elsewhere(LocalFileSystem):
    """The files of the machine under URLs of their own."""

    protocol = "elsewhere"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(str(path).removeprefix("elsewhere://"))

    def unstrip_protocol(self, name: str) -> str:
        return f"elsewhere://{self._strip_protocol(name)}"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        _tell("info", self._strip_protocol(path))
        return super().info(path, **options)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> Any:
        _tell(f"open {mode}", path)
        return super()._open(path, mode, block_size, **options)


fsspec.register_implementation("elsewhere", Elsewhere, clobber=True)


def elsewhere(path: Path) -> str:
    """The URL of this file or folder."""
    return f"elsewhere://{path}"


@contextmanager
def requests(see: Callable[[str, str], None]) -> Iterator[None]:
    """Call ``see`` with ``info``, ``open rb`` or ``open wb`` and the path just before each such request."""
    _watching.append(see)
    try:
        yield
    finally:
        _watching.remove(see)


def _tell(request: str, path: str) -> None:
    for see in list(_watching):
        see(request, path)
