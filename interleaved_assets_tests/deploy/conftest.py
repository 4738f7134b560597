"""Fixtures for what stands under deploy/."""

from pathlib import Path

import pytest

from interleaved_assets_tests.deploy.postgres import postgres_server

__all__ = ["deploy_folder", "postgres_server"]


@pytest.fixture(scope="session")
def deploy_folder() -> Path:
    return Path(__file__).parents[2] / "deploy"
