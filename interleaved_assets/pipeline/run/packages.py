"""Versions of the packages that compute scores. An upgrade can change scores, and so makes stored ones stale.

Only the first two numbers of a version are compared, because a patch release repairs errors and does not change
measurements. A package that a record does not name, or that is not installed here, counts as unchanged.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of ``packages``, which are names of distributions; those not installed are left out."""
    found = {name: _version(name) for name in packages}
    return {name: version for name, version in sorted(found.items()) if version is not None}


def changed_packages(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the changes between two sets of versions, such as ``pillow 11.3.0 → 12.0.0``."""
    return [
        f"{name} {before[name]} → {version}"
        for name, version in now.items()
        if name in before and feature_release(before[name]) != feature_release(version)
    ]


def feature_release(version: str) -> str:
    """Return the first two numbers of a version: ``4.12`` of ``4.12.0.88``."""
    return ".".join(version.split(".")[:2])


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
