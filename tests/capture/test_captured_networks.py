"""Methods that read data, on networks of Transformers and torchvision, with what capture and gradient_means give."""

from pathlib import Path

import peers
import pytest
import torch
from small_networks import batches, small
from torch import Tensor, nn

import merging
from merging.base.errors import NeedsError


def moved(kind: str, seed: int) -> nn.Module:
    """An expert: the network of ``small`` with other numbers."""
    model, draw = small(kind), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=draw))
    return model.eval()


def state(model: nn.Module) -> dict[str, Tensor]:
    """A module's numbers by the names of its parameters; tied ones once."""
    own = {name for name, _ in model.named_parameters()}
    return {name: value.clone() for name, value in model.state_dict().items() if name in own}


def outputs(model: nn.Module, given: list[dict[str, Tensor]]) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(**batch).logits.flatten(0, -2) for batch in given])


@pytest.mark.parametrize("kind", ["bert", "t5", "llama", "gpt2", "vit"])
def test_lot_with_one_expert_gives_that_experts_outputs(kind: str) -> None:
    base, expert, given = small(kind).eval(), moved(kind, 1), batches(kind)
    rows = merging.capture(expert, given, tokens=None)
    result = merging.merge(state(base), {"a": state(expert)}, "lot", {"scaling": 1.0, "rtol": 0.0},
                           layer_inputs={"a": rows}, device="cpu")  # fmt: skip
    before = outputs(expert, given)
    base.load_state_dict(result.state_dict, strict=False)
    torch.testing.assert_close(outputs(base, given), before, rtol=1e-3, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("merge,edits", [("lot", ()), ("regmean", ()), ("task_arithmetic", ("cat",))])
@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_a_file_of_rows_gives_what_the_rows_give(kind: str, merge: str, edits: tuple[str, ...], tmp_path: Path) -> None:
    base, experts = state(small(kind)), {name: moved(kind, seed) for seed, name in enumerate("ab")}
    rows = {name: merging.capture(model, batches(kind, 4)) for name, model in experts.items()}
    paths = {name: tmp_path / f"{name}.safetensors" for name in rows}
    for name, path in paths.items():
        merging.save_layer_inputs(path, rows[name])
    states = {name: state(model) for name, model in experts.items()}
    results = [
        merging.merge(base, states, merge, edits=edits, layer_inputs=given, device="cpu").state_dict
        for given in (rows, paths)
    ]
    mean = merging.merge(base, states, "weight_averaging", device="cpu").state_dict
    assert all(torch.equal(results[0][name], results[1][name]) for name in base)
    assert any(not torch.allclose(results[0][name], mean[name]) for name in base)


def label_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(**batch).logits
    return nn.functional.cross_entropy(logits, logits.argmax(dim=-1), reduction="none")


def test_fisher_and_tatr_take_gradients_of_any_network(tmp_path: Path) -> None:
    base, experts = small("bert"), {name: moved("bert", seed) for seed, name in enumerate("ab")}
    given, states = batches("bert"), {name: state(model) for name, model in experts.items()}
    fisher = {name: merging.gradient_means(model, given, label_loss) for name, model in experts.items()}
    merging.save_gradients(tmp_path / "a.safetensors", fisher["a"])
    merged = merging.merge(state(base), states, "fisher", {"floor": 0.0, "normalize": False}, gradients=fisher,
                           device="cpu").state_dict  # fmt: skip
    name = "classifier.weight"
    weights = [fisher[expert][name].double() for expert in "ab"]
    by_hand = sum(w * states[e][name] for w, e in zip(weights, "ab", strict=True)) / sum(weights)
    torch.testing.assert_close(merged[name], by_hand.float(), rtol=1e-4, atol=1e-6)
    stored = fisher | {"a": tmp_path / "a.safetensors"}
    again = merging.merge(state(base), states, "fisher", {"floor": 0.0, "normalize": False}, gradients=stored,
                          device="cpu").state_dict  # fmt: skip
    assert all(torch.equal(again[name], value) for name, value in merged.items())

    felt = {name: merging.gradient_means(base, given, label_loss, "sensitivity") for name in experts}
    kept = merging.merge(state(base), states, edits=[("tatr", {"keep": 0.5})], gradients=felt, device="cpu").state_dict
    stays, goes = [], []
    for name, value in state(base).items():
        tasks = [states[expert][name] - value for expert in "ab"]
        conflict = felt["a"][name] * tasks[1].abs() + felt["b"][name] * tasks[0].abs()
        stays.append(conflict[kept[name] == value])
        goes.append(conflict[kept[name] != value])
    assert torch.cat(stays).min() > 0
    assert torch.cat(stays).min() >= torch.cat(goes).max() * (1 - 1e-5)
    with pytest.raises(NeedsError, match="are of kind fisher; sensitivity is needed"):
        merging.merge(state(base), states, edits=["tatr"], gradients=fisher, device="cpu")
    with pytest.raises(NeedsError, match=r"The gradients of 'a' lack \d+ of \d+ tensors"):
        merging.merge(state(base), states, "fisher", gradients=fisher | {"a": {name: fisher["a"][name]}}, device="cpu")


def test_gradients_go_by_the_names_in_their_experts_file() -> None:
    base, model, given = small("bert"), moved("bert", 1), batches("bert")
    gradients = merging.gradient_means(model, given, label_loss)
    bare = {name.removeprefix("bert."): value for name, value in state(base).items() if name.startswith("bert.")}
    states, fisher = {"a": state(model), "b": state(moved("bert", 2))}, {"a": gradients, "b": gradients}
    merged = merging.merge(bare, states, "fisher", {"floor": 0.0, "normalize": False}, gradients=fisher, device="cpu")
    name = "encoder.layer.0.output.dense.weight"
    want = (states["a"][f"bert.{name}"] + states["b"][f"bert.{name}"]) / 2
    seen = gradients[f"bert.{name}"] > 1e-8
    torch.testing.assert_close(merged.state_dict[name][seen], want[seen], rtol=1e-4, atol=1e-6)


@pytest.mark.full
def test_convolutions_of_resnet_follow_their_inputs() -> None:
    def made(seed: int) -> nn.Module:
        peers.open_clip()  # it imports torchvision beside a torch of other wheels
        from torchvision.models import resnet18

        torch.manual_seed(seed)
        return resnet18(num_classes=4).eval()

    base, expert = made(0), made(1)
    images = [torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))]
    rows = merging.capture(expert, images, tokens=None)
    merged = merging.merge(dict(base.state_dict()), {"a": dict(expert.state_dict())}, "lot",
                           {"scaling": 1.0, "rtol": 0.0}, layer_inputs={"a": rows}, device="cpu")  # fmt: skip
    name = "layer1.0.conv1.weight"
    assert name in rows and "bn1.weight" in rows
    gram, own = rows[name].gram(), expert.state_dict()[name].flatten(1).double()
    missed = merged.state_dict[name].flatten(1).double() - own
    assert (missed @ gram @ missed.T).trace() < 1e-6 * (own @ gram @ own.T).trace()
    assert missed.abs().max() > 0.01  # where no patch of the images points, the weights stay pretrained
