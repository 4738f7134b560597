import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from safetensors.torch import save_file

from interleaved_assets.model.errors import SettingsError, StorageUnavailable
from interleaved_assets.scoring.clip.heads import load_head
from interleaved_assets.scoring.clip.identity import file_versions
from interleaved_assets.scoring.clip.settings import ClipSettings, HeadSettings
from interleaved_assets.settings import StorageSettings

pytestmark = pytest.mark.torch

WIDTH = 6


def embeddings(count: int = 5) -> np.ndarray:
    values = np.random.default_rng(0).normal(size=(count, WIDTH)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def scores(head: torch.nn.Module, given: np.ndarray | None = None) -> np.ndarray:
    """What a head on a device gives for embeddings, those of :func:`embeddings` unless others are given."""
    values = torch.from_numpy(embeddings() if given is None else given)
    found = head(values).numpy()
    assert found.shape == (len(values), 1)
    return found[:, 0]


def layer(outputs: int, inputs: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(outputs, inputs, generator=generator), torch.randn(outputs, generator=generator)


def stack(names: list[str], widths: list[int]) -> dict[str, torch.Tensor]:
    """A state dict with layers of those names; widths from the embedding to the output."""
    state = {}
    for number, name in enumerate(names):
        state[f"{name}.weight"], state[f"{name}.bias"] = layer(widths[number + 1], widths[number], number)
    return state


def written(state: object, path: Path) -> str:
    if path.suffix == ".safetensors":
        save_file(state, path)  # type: ignore[arg-type]  # a state dict where this suffix is used
    else:
        torch.save(state, path)
    return str(path)


def by_hand(state: dict[str, torch.Tensor], names: list[str], between: str = "none") -> np.ndarray:
    values = embeddings().astype(np.float64)
    for number, name in enumerate(names):
        if number and between == "relu":
            values = np.maximum(values, 0)
        if number and between == "gelu":
            values = torch.nn.functional.gelu(torch.from_numpy(values)).numpy()
        values = values @ state[f"{name}.weight"].double().numpy().T + state[f"{name}.bias"].double().numpy()
    return values[:, 0]


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_laions_linear_head(suffix: str, tmp_path: Path) -> None:
    weight, bias = layer(1, WIDTH, 0)
    path = written({"weight": weight, "bias": bias}, tmp_path / f"linear{suffix}")
    head = load_head("taste", HeadSettings(path=path, kind="aesthetic"), WIDTH)
    found = scores(head)
    assert found.dtype == np.float32
    assert found == pytest.approx(embeddings() @ weight[0].numpy() + bias.item(), abs=1e-6)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_laions_mlp_has_no_activations_and_layers_numbered_with_gaps_beyond_nine(suffix: str, tmp_path: Path) -> None:
    names = ["layers.0", "layers.2", "layers.4", "layers.10", "layers.11"]
    state = stack(names, [WIDTH, 5, 5, 5, 5, 1])
    head = load_head("taste", HeadSettings(path=written(state, tmp_path / f"mlp{suffix}"), kind="aesthetic"), WIDTH)
    assert scores(head) == pytest.approx(by_hand(state, names), rel=1e-5)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_the_nsfw_head_normalizes_and_ends_in_a_probability(suffix: str, tmp_path: Path) -> None:
    names = ["linear_1", "linear_2", "linear_3", "linear_4"]
    mean, variance = torch.linspace(-1, 1, WIDTH), torch.linspace(0.1, 3, WIDTH)
    state = stack(names, [WIDTH, 4, 7, 3, 1]) | {"norm.mean": mean, "norm.variance": variance}
    head = load_head("nsfw", HeadSettings(path=written(state, tmp_path / f"nsfw{suffix}"), kind="nsfw"), WIDTH)

    # the published module, spelt out
    values = (torch.from_numpy(embeddings()) - mean) / variance.sqrt()
    for name in names[:-1]:
        values = torch.relu(values @ state[f"{name}.weight"].T + state[f"{name}.bias"])
    wanted = torch.sigmoid(values @ state["linear_4.weight"].T + state["linear_4.bias"])[:, 0]
    found = scores(head)
    assert found == pytest.approx(wanted.numpy(), abs=1e-6)
    assert ((found > 0) & (found < 1)).all()


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("output", ["none", "sigmoid"])
def test_a_head_of_ones_own_with_its_functions(activation: str, output: str, tmp_path: Path) -> None:
    names = ["first", "hidden", "last"]
    state = stack(names, [WIDTH, 4, 4, 1])
    settings = HeadSettings(
        path=written({"state_dict": state}, tmp_path / "own.pth"), activation=activation, output=output
    )
    head = load_head("mine", settings, WIDTH)
    wanted = by_hand(state, names, activation)
    assert scores(head) == pytest.approx(1 / (1 + np.exp(-wanted)) if output == "sigmoid" else wanted, rel=1e-4)


def test_a_layer_without_bias_and_half_precision(tmp_path: Path) -> None:
    weight = layer(1, WIDTH, 0)[0].half()
    head = load_head("mine", HeadSettings(path=written({"fc.weight": weight}, tmp_path / "h.pth")), WIDTH)
    assert scores(head) == pytest.approx(embeddings() @ weight[0].float().numpy(), abs=1e-6)


def test_no_embeddings_give_no_scores(tmp_path: Path) -> None:
    head = load_head(
        "mine", HeadSettings(path=written({"fc.weight": layer(1, WIDTH, 0)[0]}, tmp_path / "h.pth")), WIDTH
    )
    assert scores(head, np.zeros((0, WIDTH), np.float32)).shape == (0,)


def test_a_head_for_another_model_names_both_widths(tmp_path: Path) -> None:
    path = written({"weight": torch.zeros(1, 512), "bias": torch.zeros(1)}, tmp_path / "b32.pth")
    with pytest.raises(SettingsError, match=r"heads.taste: .*b32.pth takes embeddings of width 512, .* have width 768"):
        load_head("taste", HeadSettings(path=path, kind="aesthetic"), 768)


def two(first: tuple[int, int], second: tuple[int, int]) -> dict[str, torch.Tensor]:
    return {"a1.weight": torch.zeros(first), "a2.weight": torch.zeros(second)}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({}, "it has no layer"),
        ([1, 2], "it holds a list and no state dict of tensors"),
        ({"weight": 3}, "no state dict of tensors"),
        ({"conv.weight": torch.zeros(1, 3, 3, 3)}, "conv.weight has 4 dimensions"),
        (
            {"fc.weight": torch.zeros(1, WIDTH), "fc.scale": torch.ones(1)},
            "'fc.scale', which belongs to no linear layer",
        ),
        ({"fc.weight": torch.zeros(1, WIDTH), "fc.bias": torch.zeros(2)}, r"fc.bias has shape \(2,\)"),
        (two((4, WIDTH), (1, 5)), "a2.weight takes 5 values, and the layer before gives 4"),
        ({"fc.weight": torch.zeros(2, WIDTH)}, "its last layer gives 2 values where one score is wanted"),
        ({"fc.weight": torch.full((1, WIDTH), torch.nan)}, "not finite"),
        (
            {"fc.weight": torch.zeros(1, WIDTH), "norm.mean": torch.zeros(WIDTH)},
            "only one of norm.mean and norm.variance",
        ),
        (
            {"fc.weight": torch.zeros(1, WIDTH), "norm.mean": torch.zeros(3), "norm.variance": torch.ones(3)},
            "norm.mean has 3 values",
        ),
        (
            {"fc.weight": torch.zeros(1, WIDTH), "norm.mean": torch.zeros(WIDTH), "norm.variance": torch.zeros(WIDTH)},
            "not above 0",
        ),
    ],
)
def test_what_is_no_head_says_why(state: object, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"heads.mine: .*odd.pth is no head: .*{reason}"):
        load_head("mine", HeadSettings(path=written(state, tmp_path / "odd.pth")), WIDTH)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut short"])
def test_a_damaged_file_is_refused(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"damaged{suffix}"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"heads.mine: .*damaged.* is no head: it cannot be read"):
        load_head("mine", HeadSettings(path=str(path)), WIDTH)


class Trap:
    """Would run code when unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("sprung"),)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="it cannot be read"):
        load_head("mine", HeadSettings(path=written({"weight": Trap()}, tmp_path / "trap.pth")), WIDTH)
    assert not Path("sprung").exists()


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SettingsError, match=r"clip.heads.mine: .*gone.pth"):
        load_head("mine", HeadSettings(path="/nowhere/gone.pth"), WIDTH)


def test_layers_without_numbers_cannot_be_ordered_from_safetensors(tmp_path: Path) -> None:
    state = stack(["first", "hidden", "last"], [WIDTH, 4, 4, 1])
    with pytest.raises(SettingsError, match="layers are not numbered, and safetensors keeps no order"):
        load_head("mine", HeadSettings(path=written(state, tmp_path / "own.safetensors")), WIDTH)


@pytest.mark.parametrize(
    "options", [{"endpoint_url": "http://127.0.0.1:9"}, {"client_kwargs": {"region_name": "eu-west-1"}}]
)
def test_a_head_on_the_web_is_read_without_the_options_of_the_roots(tmp_path: Path, options: dict[str, object]) -> None:
    written({"fc.weight": layer(1, WIDTH, 0)[0]}, tmp_path / "head.pth")
    storage = StorageSettings(raw_root="s3://bucket/raw", output_root=str(tmp_path), options=options)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/head.pth"
        settings = ClipSettings(heads={"mine": HeadSettings(path=url)})
        assert scores(load_head("mine", settings.heads["mine"], WIDTH, storage.options_by_scheme())).dtype == np.float32
        before = file_versions(settings, storage.options_by_scheme())
        os.utime(tmp_path / "head.pth", (1, 1))  # this server has no ETag, only a time of the last change
        assert file_versions(settings, storage.options_by_scheme()) != before
        server.shutdown()
    with pytest.raises(StorageUnavailable, match="did not respond"):
        file_versions(settings, storage.options_by_scheme())
