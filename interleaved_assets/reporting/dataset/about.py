"""The origin of a report: its date, the versions that made it, and the settings."""

import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import NamedTuple

from interleaved_assets.settings import SettingLine, Settings, setting_lines


class About(NamedTuple):
    """Date, versions and settings of a report."""

    made: str
    """Date and time in UTC, such as ``2026-01-31 06:00 UTC``."""
    versions: dict[str, str]
    """Version by package, with Python among them."""
    settings: list[SettingLine]

    @property
    def text(self) -> str:
        """Date and versions in one line."""
        return f"Made {self.made} with " + ", ".join(f"{name} {version}" for name, version in self.versions.items())


def about(settings: Settings, now: datetime | None = None) -> About:
    """Return date, versions and settings of a report made now. torch and open_clip are named if CLIP is enabled."""
    packages = ["interleaved-assets", "dagster", *(["torch", "open_clip_torch"] if settings.clip.enabled else [])]
    versions = {name: _version(name) for name in packages} | {"Python": platform.python_version()}
    return About(f"{now or datetime.now(UTC):%Y-%m-%d %H:%M} UTC", versions, list(setting_lines(settings)))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed here"
