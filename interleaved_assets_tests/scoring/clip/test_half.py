import numpy as np
import pytest

pytest.importorskip("open_clip")
import open_clip
import torch

from benchmarks.clip import photo
from benchmarks.clip_differences import differences, shipped_settings
from interleaved_assets.scoring.clip.model import compute_in_half, half_image_parts, half_text_parts
from interleaved_assets_tests.scoring.clip_tiny import CONFIG, SIDE, WIDTH, tiny_module

pytestmark = pytest.mark.torch


def half_module() -> open_clip.CLIP:
    module = tiny_module().requires_grad_(False)
    compute_in_half(module, "cpu", torch.bfloat16)
    return module


def test_scores_of_the_shipped_model_are_close_to_open_clip_in_fp32() -> None:
    random = np.random.default_rng(0)
    images = [photo(random, 320, 240) for _ in range(16)]
    found = differences(images, shipped_settings(), [("fp32", "pillow"), ("bf16", "pillow"), ("bf16", "torch")])
    assert found["fp32", "pillow"] < 1e-6
    # all of it under autocast: 2.1e-3
    assert 1e-4 < found["bf16", "pillow"] < 1.5e-3
    assert 1e-4 < found["bf16", "torch"] < 1.5e-3


def test_matrix_products_of_blocks_are_in_bf16_and_what_is_added_up_between_them_is_not() -> None:
    module = half_module()
    dtypes: dict[str, set[torch.dtype]] = {}
    watched = {
        "stem": module.visual.conv1,
        "image blocks": module.visual.transformer.resblocks[1],
        "image layer": module.visual.transformer.resblocks[1].mlp.c_fc,
        "after": module.visual.ln_post,
        "text blocks": module.transformer.resblocks[1],
        "text layer": module.transformer.resblocks[1].mlp.c_fc,
        "text attention": module.transformer.resblocks[1].attn,
    }
    for name, part in watched.items():
        part.register_forward_hook(lambda _part, _in, out, name=name: dtypes.setdefault(name, set()).add(out[0].dtype))
    with torch.inference_mode():
        assert module.encode_image(torch.rand(2, 3, SIDE, SIDE)).dtype == torch.float32
        assert module.encode_text(torch.tensor([[49406, 320, 49407] + [0] * 13])).dtype == torch.float32
    half, full = {torch.bfloat16}, {torch.float32}
    assert dtypes == {
        "stem": full,
        "image blocks": full,
        "image layer": half,
        "after": full,
        "text blocks": full,
        "text layer": half,
        "text attention": full,
    }


def test_weights_of_the_image_models_parts_are_stored_in_half_precision_and_no_others() -> None:
    half = {name for name, weights in half_module().named_parameters() if weights.dtype == torch.bfloat16}
    kinds = ("attn.in_proj_weight", "attn.in_proj_bias", "attn.out_proj", "mlp.c_fc", "mlp.c_proj")
    assert half == {
        name
        for name, _ in tiny_module().named_parameters()
        if name.startswith("visual.transformer.") and any(kind in name for kind in kinds)
    }


def test_a_residual_network_rounds_in_the_convolutions_of_its_later_layers() -> None:
    vision = {"image_size": SIDE, "layers": [1, 1, 1, 1], "width": 16, "head_width": 16}
    module = open_clip.CLIP(WIDTH, vision, CONFIG["text_cfg"]).eval().requires_grad_(False)
    images = torch.rand(2, 3, SIDE, SIDE)
    with torch.inference_mode():
        exact = module.encode_image(images)
        compute_in_half(module, "cpu", torch.bfloat16)
        assert {part.weight.dtype for part in half_image_parts(module.visual)} == {torch.bfloat16}
        assert {weights.dtype for weights in module.visual.layer2.parameters()} == {torch.float32}
        found = module.encode_image(images)
    assert found.dtype == torch.float32
    difference = (found - exact).abs().max() / exact.abs().max()
    assert 1e-5 < difference < 0.02


def test_an_architecture_that_is_not_known_is_all_in_half_precision() -> None:
    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.visual, self.text = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)

    module = Other().requires_grad_(False)
    assert (half_image_parts(module.visual), half_text_parts(module)) == ([module.visual], [module.text])
    compute_in_half(module, "cpu", torch.float16)
    assert (module.visual.weight.dtype, module.text.weight.dtype) == (torch.float16, torch.float32)
    seen: list[torch.dtype] = []
    module.visual.register_forward_hook(lambda _part, _in, out: seen.append(out.dtype))
    with torch.inference_mode():
        module.visual(torch.ones(1, 3))
    assert seen == [torch.float32]


def test_a_text_model_of_its_own_module_has_the_same_parts() -> None:
    module = open_clip.CustomTextCLIP(**CONFIG)
    assert half_text_parts(module) == [block.mlp for block in module.text.transformer.resblocks]
