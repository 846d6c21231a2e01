"""Gradients of labeled exemplars: as the engine gathers them, and by plain backward passes."""

from __future__ import annotations

from dataclasses import replace

import tiny
import torch

from merging.base.progress import Meter
from merging.engine.gradients import gather_gradients
from merging.engine.run_inputs import RunInputs
from merging.images.image_encoder import Encoder
from merging.methods.slot import Slot
from merging.models.checkpoint import MappingCheckpoint, UnusedText
from merging.models.families import classify_parameters

(PARAMETER,) = classify_parameters(["visual.proj"])


def make_inputs(base, experts):
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    return RunInputs(tiny.checkpoint(base), opened, None, torch.device("cpu"), UnusedText())


def gather_plain(base, experts, shown, kind, seed=0):
    """{tensor: (K, *S)}"""
    inputs = make_inputs(base, experts)
    with gather_gradients({kind}, inputs, shown, seed, Meter(0)) as found:
        return {n: found[kind].read(n, 0, v.numel()).reshape(-1, *v.shape) for n, v in base.items()}


def logits(state, image, task):
    """What a task's head says of one image (classes,), with the tower in the precision of ``state``."""
    tensors = {name.removeprefix("visual."): value for name, value in state.items()}
    encoder = replace(Encoder.from_checkpoint(tiny.checkpoint(tiny.pretrained())), tensors=tensors)
    features = torch.nn.functional.normalize(encoder(image[None].to(state["visual.proj"].dtype)), dim=-1)
    return task.logit_scale * features[0] @ task.head.to(features.dtype).T


def gradient(state, image, label, task):
    """{tensor: gradient of one image's loss}, by a plain backward pass."""
    leaves = {name: value.clone().requires_grad_() for name, value in state.items()}
    torch.nn.functional.cross_entropy(logits(leaves, image, task)[None], label.reshape(1)).backward()
    return {name: leaf.grad for name, leaf in leaves.items()}


def make_slot(vectors, kind, gradients):
    vectors, gradients = (torch.tensor(rows, dtype=torch.float64) for rows in (vectors, gradients))
    names = tuple(f"expert {k}" for k in range(len(vectors)))
    return Slot(PARAMETER, names, torch.zeros_like(vectors[0]), vectors, gradients={kind: gradients})
