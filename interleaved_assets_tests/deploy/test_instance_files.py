"""What holds for every dagster.yaml of the repository."""

from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
VARIANTS = {"postgres": {"storage"}, "s3-logs": {"compute_logs"}}


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_differs_from_the_file_of_one_machine_by_its_own_section(variant: str) -> None:
    ours = read(REPOSITORY / "deploy" / variant / "dagster.yaml")
    assert {name: value for name, value in ours.items() if name not in VARIANTS[variant]} == read(
        REPOSITORY / "dagster.yaml"
    )
    assert VARIANTS[variant] <= set(ours)


@pytest.mark.parametrize("variant", VARIANTS)
def test_secrets_come_from_the_environment(variant: str) -> None:
    def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        if not isinstance(value, dict):
            return [path]
        return [leaf for name, inner in value.items() for leaf in leaves(inner, (*path, name))]

    secret = {"password", "username", "hostname", "bucket", "db_name", "local_dir"}
    for path in leaves(read(REPOSITORY / "deploy" / variant / "dagster.yaml")):
        if secret & set(path):
            assert path[-1] == "env"


def test_telemetry_is_off() -> None:
    assert read(REPOSITORY / "dagster.yaml")["telemetry"] == {"enabled": False}
