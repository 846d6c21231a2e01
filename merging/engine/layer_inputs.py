"""Layer inputs as moments: from rows that the caller passes, or captured from exemplars.

Layer inputs are the rows that enter a weight while exemplars run through a network. A team is the pretrained model and
its experts with tensors under shared names.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Protocol

import torch
from torch import Tensor

from merging.base.errors import NeedsError
from merging.base.text import first_few
from merging.base.threads import ONE_THREAD, limit_to_one_thread, parallel_pieces
from merging.engine.capture.data_files import open_layer_inputs
from merging.engine.needs import check_images
from merging.images.batch_sizes import batch_size
from merging.images.image_encoder import Encoder
from merging.methods.moments import Moments
from merging.models.checkpoint import Checkpoint
from merging.models.families import EMBEDDINGS, Parameter, Role
from merging.models.team.team_names import rename_to_team
from merging.models.tower_names import is_transposed

# {expert: {parameter name: rows}, or a file of them}. Rows are (n, d_in) for a linear weight, and normalized (n, d) for
# a norm scale. Moments may replace rows.
LayerInputs = Mapping[str, Mapping[str, Tensor | Moments] | str | os.PathLike[str]]
OnDetail = Callable[[str], None]  # called with the current expert's name between pieces of work; may raise Cancelled
ROLES_WITH_INPUTS = {Role.LINEAR, Role.CONV, Role.PROJECTION, Role.NORM_SCALE}


def ignore_detail(detail: str) -> None:
    """Do nothing: the ``OnDetail`` of callers that do not follow progress."""


class LayerInputSource(Protocol):
    """A source of the moments of layer inputs."""

    def moments(self, parameter: Parameter, on_detail: OnDetail = ignore_detail) -> tuple[Moments, ...] | None:
        """The moments of the rows that enter a parameter, one per expert; None if no rows enter it."""
        ...


class CallerInputs:
    """Layer inputs that the caller passes.

    Raises:
        NeedsError: they are not such a mapping, hold no rows for any expert, or hold rows for a tensor that takes none.
    """

    def __init__(
        self,
        layer_inputs: LayerInputs,
        experts: Mapping[str, Checkpoint] | tuple[str, ...],
        pretrained: Checkpoint,
        device: torch.device,
    ) -> None:
        self._experts, self._pretrained = tuple(experts), pretrained
        self._device = torch.device("cpu") if device.type == "mps" else device  # rows may be float64
        if not isinstance(layer_inputs, Mapping):
            raise NeedsError("Layer inputs are a mapping {expert: {parameter name: rows}}.")
        checkpoints = experts if isinstance(experts, Mapping) else {}
        self._inputs = {
            expert: rename_to_team(open_layer_inputs(rows, expert), checkpoints.get(expert))
            for expert, rows in layer_inputs.items()
        }
        tensors = {name for expert in experts for name in self._inputs.get(expert, {})}
        if unknown := sorted(tensors - set(pretrained.infos)):
            raise NeedsError(f"Layer inputs name tensors that the model does not have: {first_few(unknown)}.")
        if not tensors:
            other_experts = f"; they name {first_few(sorted(map(str, layer_inputs)))}" if layer_inputs else ""
            raise NeedsError(f"The layer inputs hold no rows for any of {', '.join(experts)}{other_experts}.")
        with_inputs = {parameter.name for parameter in pretrained.parameters if parameter.role in ROLES_WITH_INPUTS}
        if rowless := sorted(tensors - with_inputs):
            raise NeedsError(f"No rows enter {first_few(rowless)}; layer inputs belong to weights and norm scales.")

    def moments(self, parameter: Parameter, on_detail: OnDetail = ignore_detail) -> tuple[Moments, ...] | None:
        """The moments of the caller's rows, one per expert; None if there are none for this parameter.

        Raises:
            NeedsError: some experts have rows for this parameter and others do not, or the rows cannot enter it.
        """
        with_rows = [expert for expert in self._experts if parameter.name in self._inputs.get(expert, {})]
        if 0 < len(with_rows) < len(self._experts):
            missing = next(expert for expert in self._experts if expert not in with_rows)
            raise NeedsError(
                f"There are layer inputs of {parameter.name!r} for {with_rows[0]!r} but not for {missing!r}."
            )
        return tuple(self._read_moments(parameter, expert) for expert in self._experts) if with_rows else None

    def _read_moments(self, parameter: Parameter, expert: str) -> Moments:
        """The moments of one expert's rows for a parameter. Raises NeedsError if the rows cannot enter it."""
        rows = self._inputs[expert][parameter.name]
        shape = self._pretrained.infos[parameter.name].shape
        inputs_first = parameter.role == Role.NORM_SCALE or is_transposed(parameter)
        width = shape[0] if inputs_first else math.prod(shape[1:])
        description = f"Layer inputs of {parameter.name!r} for {expert!r}"
        if isinstance(rows, Moments):
            return self._check_moments(rows, width, parameter, description)
        if not isinstance(rows, Tensor) or rows.ndim != 2 or rows.shape[1] != width:
            shape_or_type = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            raise NeedsError(f"{description} must be a tensor (n, {width}); got {shape_or_type}.")
        if not len(rows):
            raise NeedsError(f"{description} hold no rows.")
        if not torch.isfinite(rows).all():
            raise NeedsError(f"{description} hold NaN or infinity.")
        return Moments.from_rows(
            rows.detach().to(self._device, rows.dtype if rows.dtype == torch.float64 else torch.float32)
        )

    def _check_moments(self, moments: Moments, width: int, parameter: Parameter, description: str) -> Moments:
        if moments.width != width or (moments.is_diagonal and parameter.role != Role.NORM_SCALE):
            kind = "of a scale" if moments.is_diagonal else "of rows"
            raise NeedsError(f"{description} must be of width {width}; got moments {kind} of width {moments.width}.")
        if not moments.count:
            raise NeedsError(f"{description} hold no rows.")
        if not all(torch.isfinite(tensor).all() for tensor in moments.stored_tensors):
            raise NeedsError(f"{description} hold NaN or infinity.")
        return moments.to_device(self._device)


class CapturedInputs:
    """Layer inputs captured from exemplars, block by block as the merge advances through the network.

    Every expert receives its own task's exemplars (n, 3, h, w), in batches. Callers should request parameters in
    forward order: memory holds the tokens between two blocks and the moments of one block, and a request for an earlier
    block runs the exemplars through the network again from the start. Blocks are numbered as sections: section 0 is the
    network before the blocks, section i + 1 is block i, and the last section follows the blocks. The checkpoint
    ``like`` states the architecture of experts without metadata.

    Raises:
        NeedsError: an expert has no exemplars, or images that its tower cannot take.
    """

    def __init__(
        self,
        experts: Mapping[str, Checkpoint],
        exemplars: Mapping[str, Tensor],
        device: torch.device,
        like: Checkpoint | None = None,
    ) -> None:
        if missing := [name for name in experts if not len(exemplars.get(name, ()))]:
            raise NeedsError(f"There are no exemplars for {', '.join(missing)}; give images for every expert.")
        self._encoders = {
            name: Encoder.from_checkpoint(expert, device, on_demand=True, fallback=like)
            for name, expert in experts.items()
        }
        for name, encoder in self._encoders.items():
            check_images(f"The exemplars of {name!r}", exemplars[name], encoder.architecture.image_size)
        self._images = {name: exemplars[name].to(device, torch.float32) for name in self._encoders}
        self._threads = min(parallel_pieces(device), len(experts))
        self._report_lock = Lock()  # progress of several experts is reported one after the other
        self._next_section = 0  # the one that runs next
        self._tokens: dict[str, Tensor] = {}  # {expert: (n, T, w)}
        self._moments: list[dict[str, Moments]] = []  # of the section that ran last, per expert
        self._norms = {p.name for p in next(iter(experts.values())).parameters if p.role == Role.NORM_SCALE}
        groups = next(iter(self._encoders.values())).names.values()
        # {tensor: the tensor under which its rows are stored}; query, key and value have the same rows
        self._shared_name = {name: group[0] for group in groups for name in group}

    def moments(self, parameter: Parameter, on_detail: OnDetail = ignore_detail) -> tuple[Moments, ...] | None:
        """The moments of the rows that enter this parameter, one per expert; None if no rows enter it."""
        self._run_to(self._section_of(parameter), on_detail)
        name = self._shared_name[parameter.name]
        return tuple(moments[name] for moments in self._moments if name in moments) or None

    @property
    def stored_tensors(self) -> Iterator[Tensor]:
        """The tensors in memory between two calls: images (n, 3, h, w), tokens (n, T, w), moments of one section."""
        yield from (*self._images.values(), *self._tokens.values())
        for expert_moments in self._moments:
            for moments in expert_moments.values():
                yield from moments.stored_tensors

    def _section_of(self, parameter: Parameter) -> int:
        """The number of the section of the tower that a parameter belongs to."""
        if parameter.block is not None:
            return parameter.block + 1
        return 0 if parameter.section == EMBEDDINGS else next(iter(self._encoders.values())).sections - 1

    def _run_to(self, section: int, on_detail: OnDetail) -> None:
        """Run forward (from the start, if ``section`` has already run) until the moments are those of ``section``."""
        if section < self._next_section - 1:
            self._next_section = 0
        with torch.no_grad():
            while self._next_section <= section:
                self._moments = []  # frees the moments of the previous section
                try:
                    self._moments = self._run_experts(partial(self._pass_section, section, on_detail))
                except BaseException:  # some experts' tokens are one section ahead: the next call starts over
                    self._next_section, self._tokens = 0, {}
                    raise
                self._next_section += 1

    def _run_experts(self, run: Callable[[str], dict[str, Moments]]) -> list[dict[str, Moments]]:
        """The moments of every expert; several experts run at once, with one thread each."""
        if self._threads == 1:
            return [run(name) for name in self._encoders]
        prepare = partial(_prepare_thread, torch.is_grad_enabled())
        with limit_to_one_thread(), ThreadPoolExecutor(self._threads, initializer=prepare) as pool:
            return list(pool.map(run, self._encoders))

    def _pass_section(self, section: int, on_detail: OnDetail, name: str) -> dict[str, Moments]:
        """Pass an expert's tokens through the next section; return its moments if it is ``section``, else none."""
        section_encoder = self._encoders[name].load_section(self._next_section)
        record = self._next_section == section
        return self._run(name, section_encoder, self._next_section, on_detail, record=record, move=True)

    def _run(
        self, expert: str, encoder: Encoder, section: int, on_detail: OnDetail, *, record: bool, move: bool
    ) -> dict[str, Moments]:
        """Pass one expert's tokens through a section; with ``move``, the section's outputs replace them.

        Returns the moments of the rows that entered the section's parameters, by name; empty without ``record``.
        """
        inputs = self._images[expert] if section == 0 else self._tokens[expert]
        moments: dict[str, Moments] = {}

        def add_rows(name: str, rows: Tensor) -> None:
            if self._shared_name[name] == name:
                moments.setdefault(name, Moments(rows.shape[1], name in self._norms)).add(rows)

        size = batch_size(encoder.architecture, inputs.device)
        for start in range(0, len(inputs), size):
            with self._report_lock:
                on_detail(expert)
            batch = slice(start, start + size)
            outputs = encoder.run_section(section, inputs[batch], add_rows if record else None)
            if move and section == 0 and start == 0:
                self._tokens[expert] = outputs.new_empty((len(inputs), *outputs.shape[1:]))
            if move and section < encoder.sections - 1:
                self._tokens[expert][batch] = outputs
        return moments


def _prepare_thread(grad: bool) -> None:
    """Prepare a thread that computes while others do; ``grad`` is whether the starting thread records gradients."""
    ONE_THREAD()  # torch computes with one thread in this one
    torch.set_grad_enabled(grad)
