"""Layer inputs of any module: what capture sees, how it is called, and its file."""

from pathlib import Path
from typing import Any

import peers
import pytest
import tiny
import torch
from safetensors.torch import save_file
from small_networks import LENGTH, batches, small
from torch import Tensor, nn

import merging
from merging.base.errors import NeedsError
from merging.engine.capture.data_files import LayerInputFile
from merging.engine.capture.watcher import extract_patches
from merging.engine.layer_inputs import CapturedInputs
from merging.models.formats.model_sources import open_checkpoint


def hooked(model: nn.Module, given: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """What forward hooks see enter every linear layer, all rows."""
    seen: dict[str, list[Tensor]] = {}
    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    handles = [
        layer.register_forward_pre_hook(
            lambda _, args, name=name: seen.setdefault(f"{name}.weight", []).append(args[0].flatten(0, -2))
        )
        for name, layer in linear.items()
    ]
    model.eval()
    with torch.no_grad():
        for batch in given:
            model(**batch)
    for handle in handles:
        handle.remove()
    return {name: torch.cat(rows) for name, rows in seen.items()}


@pytest.mark.parametrize("kind", ["bert", "t5", "llama", "vit", "deberta"])
def test_rows_are_those_that_forward_hooks_see(kind: str) -> None:
    model, given = small(kind), batches(kind)
    rows, seen = merging.capture(model, given, tokens=None), hooked(model, given)
    linear = {name for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and name != "lm_head"}
    assert {f"{name}.weight" for name in linear} <= set(rows)
    for name in linear:
        own, by_hook = rows[f"{name}.weight"], seen[f"{name}.weight"].double()
        assert own.count == len(by_hook)
        torch.testing.assert_close(own.gram(), by_hook.T @ by_hook)
        torch.testing.assert_close(own.total(), by_hook.sum(dim=0))


def test_conv1d_of_gpt2_has_rows_and_the_outputs_that_the_layer_gives() -> None:
    model, given = small("gpt2"), batches("gpt2", 1)
    layer, outputs = model.transformer.h[1].mlp.c_fc, []
    handle = layer.register_forward_hook(lambda _, args, out: outputs.append(out.flatten(0, -2)))
    rows = merging.capture(model, given)["transformer.h.1.mlp.c_fc.weight"].gram()
    handle.remove()
    whole = (outputs[0] - layer.bias).double()
    weight = layer.weight.detach().double()
    torch.testing.assert_close(weight.T @ rows @ weight, whole.T @ whole, rtol=1e-5, atol=1e-8)


def test_norms_see_normalized_rows() -> None:
    model, given = small("llama"), batches("llama", 1)
    inside: list[Tensor] = []
    norm = model.model.layers[1].post_attention_layernorm
    handle = norm.register_forward_hook(lambda _, args, out: inside.append((out / norm.weight).flatten(0, -2)))
    with torch.no_grad():
        norm.weight.mul_(torch.linspace(0.5, 2.0, 16))
    rows = merging.capture(model, given)["model.layers.1.post_attention_layernorm.weight"]
    handle.remove()
    torch.testing.assert_close(rows.energy(), inside[0].double().square().sum(dim=0), rtol=1e-5, atol=1e-6)


def test_packed_attention_sees_what_three_projections_see() -> None:
    torch.manual_seed(0)
    packed, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    missing = torch.zeros(3, 5, dtype=torch.bool)
    missing[1, 3:] = True

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = packed

        def forward(self, x: Tensor) -> Tensor:
            out, _ = self.attention(x, x, x, key_padding_mask=missing, need_weights=False)
            return out

    outputs: list[Tensor] = []
    model = Attends().eval()
    rows = merging.capture(model, [x], tokens=None)
    kept = x[~missing].double()
    torch.testing.assert_close(rows["attention.in_proj_weight"].gram(), kept.T @ kept)
    with torch.no_grad():
        outputs.append(model(x)[~missing] - packed.out_proj.bias)
    weight, out = packed.out_proj.weight.detach().double(), outputs[0].double()
    entered = rows["attention.out_proj.weight"].gram()
    torch.testing.assert_close(weight @ entered @ weight.T, out.T @ out, rtol=1e-5, atol=1e-7)


def test_packed_weights_used_for_unlike_rows_have_none() -> None:
    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.packed = nn.Parameter(torch.randn(12, 4))
            self.other = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.packed.chunk(3)
            y = self.other(x)
            return nn.functional.linear(x, q) + nn.functional.linear(y, k) + nn.functional.linear(y, v)

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            out, _ = self.attention(x, 2 * x, 2 * x)
            return out

    assert set(merging.capture(Cross(), [torch.randn(5, 4)])) == {"other.weight"}
    assert set(merging.capture(Looks(), [torch.randn(5, 4)])) == {"attention.out_proj.weight"}


@pytest.mark.parametrize(("padding", "dilation", "stride"), [(1, 1, 1), ("same", 2, 1), ((0, 2), (1, 2), (2, 1))])
def test_patches_are_what_a_convolution_multiplies(padding: Any, dilation: Any, stride: Any) -> None:
    conv = nn.Conv2d(3, 4, (3, 2), stride, padding, dilation, bias=False)
    x = torch.randn(2, 3, 9, 7)
    rows = merging.capture(nn.Sequential(conv), [x], tokens=None)["0.weight"]
    out = conv(x).detach().movedim(1, -1).flatten(0, -2).double()
    weight = conv.weight.detach().flatten(1).double()
    assert rows.count == len(out)
    torch.testing.assert_close(weight @ rows.gram() @ weight.T, out.T @ out, rtol=1e-5, atol=1e-6)


def test_patches_are_a_view() -> None:
    x = torch.randn(1, 2, 6)
    assert extract_patches(x, (3,), (1,), (1,), ((0, 0),)).shape == (1, 4, 2, 3)


def test_padded_rows_are_dropped_on_either_side() -> None:
    model, (given,) = small("t5"), batches("t5", 1)
    mask, decoder = torch.ones(3, LENGTH, dtype=torch.long), torch.ones(3, 4, dtype=torch.long)
    mask[0, 4:], decoder[1, 2:] = 0, 0
    rows = merging.capture(model, [given | {"attention_mask": mask, "decoder_attention_mask": decoder}])
    assert rows["encoder.block.0.layer.0.SelfAttention.q.weight"].count == mask.sum()
    assert rows["decoder.block.0.layer.0.SelfAttention.q.weight"].count == decoder.sum()
    assert rows["decoder.block.0.layer.1.EncDecAttention.q.weight"].count == decoder.sum()
    assert rows["decoder.block.0.layer.1.EncDecAttention.k.weight"].count == mask.sum()


def test_a_draw_is_of_so_many_rows_and_repeats() -> None:
    model, given = small("bert"), batches("bert", 4)
    name = "bert.encoder.layer.1.output.dense.weight"
    few, again, other = (merging.capture(model, given, tokens=5, seed=seed)[name] for seed in (0, 0, 1))
    assert few.count == 5
    assert few.rows is not None and again.rows is not None and other.rows is not None
    assert torch.equal(few.rows, again.rows) and not torch.equal(few.rows, other.rows)
    alone = merging.capture(model, given, only=r"layer\.1\.output\.dense", tokens=5)
    assert list(alone) == [name] and torch.equal(alone[name].gram(), few.gram())
    everything = hooked(model, given)[name]
    assert all(any(torch.equal(row, one) for one in everything) for row in few.rows)


class Clip(nn.Module):
    """An open_clip model's image side."""

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual

    def forward(self, images: Tensor) -> Tensor:
        return self.visual(images)


def test_capture_gives_what_the_engine_captures_of_a_clip_tower() -> None:
    parts = peers.open_clip().transformer
    model = Clip(parts.VisionTransformer(
        tiny.SIZE, tiny.PATCH, tiny.WIDTH, tiny.LAYERS, tiny.WIDTH // 8, 4.0, output_dim=tiny.EMBED,
        act_layer=parts.QuickGELU,
    ))  # fmt: skip
    state = tiny.expert(tiny.pretrained(), 1)
    model.load_state_dict(state)
    images = torch.randn(4, 3, tiny.SIZE, tiny.SIZE, generator=torch.Generator().manual_seed(0))
    expert = tiny.checkpoint(state)
    rows = merging.capture(model, [images[:3], images[3:]], tokens=None)
    engine = CapturedInputs({"a": expert}, {"a": images}, torch.device("cpu"))
    compared = 0
    for parameter in expert.parameters:
        found = engine.moments(parameter)
        assert (found is not None) == (parameter.name in rows)
        if found is not None and "ln_post" not in parameter.name:  # open_clip's norm sees all tokens, ours one
            own, compared = rows[parameter.name], compared + 1
            assert own.count == found[0].count
            torch.testing.assert_close(own.energy(), found[0].energy(), rtol=1e-4, atol=1e-4)
            if not own.is_diagonal:
                torch.testing.assert_close(own.gram(), found[0].gram(), rtol=1e-4, atol=1e-4)
    assert compared == 1 + 1 + 6 * tiny.LAYERS + 1


def test_names_are_the_checkpoints(tmp_path: Path) -> None:
    model, given = small("vit"), batches("vit", 1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.01 * torch.randn_like(weight))
    model.save_pretrained(tmp_path)
    stored = open_checkpoint(tmp_path)
    rows = merging.capture(model, given, like=tmp_path)
    own = merging.capture(model, given)
    assert set(rows) <= set(stored.infos) and len(rows) == len(own)
    assert rows.model == stored.digest
    (query,) = (name for name in rows if "layer.1." in name and "query" in name)
    torch.testing.assert_close(rows[query].gram(), own["vit.layers.1.attention.q_proj.weight"].gram())
    body = merging.capture(model.vit, given, like=tmp_path)  # without the classifier, and without the prefix
    assert set(body) == {name for name in rows if not name.startswith("classifier")}
    with pytest.raises(
        NeedsError, match=r"The module's parameter 'classifier.weight' is not a tensor of the checkpoint"
    ):
        merging.capture(model, given, like={name: value for name, value in stored.state_dict().items()
                                            if not name.startswith("classifier")})  # fmt: skip


def test_a_file_gives_back_the_same_moments(tmp_path: Path) -> None:
    model, given, path = small("bert"), batches("bert"), tmp_path / "rows.safetensors"
    rows = merging.capture(model, given)
    few = merging.capture(model, given, tokens=3)
    for kept in (rows, few):
        merging.save_layer_inputs(path, kept)
        stored = LayerInputFile(path)
        assert set(stored) == set(kept)
        for name, moments in kept.items():
            found = stored[name]
            assert found.count == moments.count and found.is_diagonal == moments.is_diagonal
            torch.testing.assert_close(found.energy(), moments.energy(), rtol=0, atol=0)
            torch.testing.assert_close(found.total(), moments.total(), rtol=0, atol=0)
            if not moments.is_diagonal:
                torch.testing.assert_close(found.gram(), moments.gram(), rtol=0, atol=0)
    tensors = {name.partition("/")[2] for name in open_checkpoint(path).infos}
    at = "bert.encoder.layer.0.attention.self"
    assert f"{at}.query.weight" in tensors and f"{at}.key.weight" not in tensors  # the same rows are stored once
    assert stored[f"{at}.key.weight"].rows is not None


def test_a_wrong_file_says_what_it_is(tmp_path: Path) -> None:
    model, given, path = small("bert"), batches("bert", 4), tmp_path / "rows.safetensors"
    model.save_pretrained(tmp_path)
    with pytest.raises(
        NeedsError, match=r"model.safetensors is not a file of layer inputs: .*merging.save_layer_inputs"
    ):
        LayerInputFile(tmp_path / "model.safetensors")
    rows = {name: moments for name, moments in merging.capture(model, given).items() if "encoder" in name}
    merging.save_layer_inputs(path, rows)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'counts":"{\\"bert', b'counts":"{\\"tert', 1))
    with pytest.raises(NeedsError, match=r"rows.safetensors is damaged"):
        LayerInputFile(path)


def test_what_cannot_be_captured_is_refused() -> None:
    linear = nn.Sequential(nn.Linear(4, 4))
    for given, words in (
        ([(torch.randn(2, 4), 1)], "A batch is a tensor"),
        (torch.randn(2, 4), "batches is an iterable"),
        ([], "There are no batches"),
        ([torch.full((2, 4), float("nan"))], "The rows that enter '0.weight' hold NaN"),
    ):
        with pytest.raises(NeedsError, match=words):
            merging.capture(linear, given)
    with pytest.raises(NeedsError, match=r"undo torch\.compile first"):
        merging.capture(torch.compile(linear, backend="eager"), [torch.randn(2, 4)])
    with pytest.raises(NeedsError, match="is split over processes"):
        merging.capture(nn.DataParallel(nn.Sequential(nn.Linear(4, 4))), [torch.randn(2, 4)])
    with pytest.raises(NeedsError, match="matches only='x'"):
        merging.capture(linear, [torch.randn(2, 4)], only="x")
    assert linear.train().training and merging.capture(linear, [torch.randn(2, 4)]) and linear.training


def test_gradients_are_means_over_single_examples() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.Linear(4, 3)), torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    given = [{"x": x[:2], "y": y[:2]}, {"x": x[2:], "y": y[2:]}]

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch["x"]), batch["y"], reduction="none")

    squares, sizes = torch.zeros(3, 4), torch.zeros(3, 4)
    for i in range(5):
        (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]),
                                          [model[0].weight])  # fmt: skip
        squares, sizes = squares + gradient.square() / 5, sizes + gradient.abs() / 5
    torch.testing.assert_close(merging.gradient_means(model, given, loss)["0.weight"], squares)
    torch.testing.assert_close(merging.gradient_means(model, given, loss, "sensitivity")["0.weight"], sizes)
    with pytest.raises(NeedsError, match=r"one differentiable number per example, \(n,\); got \(\)"):
        merging.gradient_means(model, given, lambda model, batch: loss(model, batch).mean())


@pytest.mark.parametrize("said", [{"same": '{"x": ["y"]}'}, {"counts": "[" * 100_000}])
def test_a_file_of_rows_that_says_what_it_cannot_hold_is_damaged(said: dict[str, str], tmp_path: Path) -> None:
    metadata = {"format": "mergescope layer inputs 1", **said}
    save_file({"rows/a": torch.ones(2, 2)}, tmp_path / "rows.safetensors", metadata)
    with pytest.raises(NeedsError, match="damaged"):
        LayerInputFile(tmp_path / "rows.safetensors")
