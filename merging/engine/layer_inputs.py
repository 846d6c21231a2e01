"""Layer inputs as moments: from rows that the caller passes, or captured from exemplars."""

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
from merging.methods.moments import Moments, ignore_detail
from merging.models.checkpoint import Checkpoint
from merging.models.families import EMBEDDINGS, Parameter, Role
from merging.models.team.team_names import rename_to_team
from merging.models.tower_names import is_transposed

# {expert: {parameter name: rows}, or a file of them}. Rows are (n, d_in) for a linear weight, and normalized (n, d) for
# a norm scale. Moments may replace rows.
LayerInputs = Mapping[str, Mapping[str, Tensor | Moments] | str | os.PathLike[str]]
OnDetail = Callable[[str], None]  # called with the current expert's name between pieces of work; may raise Cancelled
TAKES_ROWS = {Role.LINEAR, Role.CONV, Role.PROJECTION, Role.NORM_SCALE}


class LayerInputSource(Protocol):
    """A source of the moments of layer inputs."""

    def moments(self, parameter: Parameter, on_detail: OnDetail = ignore_detail) -> tuple[Moments, ...] | None:
        """The moments of the rows that enter a parameter, one per expert; None if no rows enter it."""
        ...


class CallerInputs:
    """Layer inputs that the caller passes.

    Raises:
        NeedsError: they are no such mapping, hold no rows for any expert, or hold rows for a tensor that takes none.
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
        own = experts if isinstance(experts, Mapping) else {}
        self._inputs = {
            expert: rename_to_team(open_layer_inputs(rows, expert), own.get(expert))
            for expert, rows in layer_inputs.items()
        }
        named = {name for expert in experts for name in self._inputs.get(expert, {})}
        if unknown := sorted(named - set(pretrained.infos)):
            raise NeedsError(f"Layer inputs name tensors that the model does not have: {first_few(unknown)}.")
        if not named:
            others = f"; they name {first_few(sorted(map(str, layer_inputs)))}" if layer_inputs else ""
            raise NeedsError(f"The layer inputs hold no rows for any of {', '.join(experts)}{others}.")
        takes = {parameter.name for parameter in pretrained.parameters if parameter.role in TAKES_ROWS}
        if rowless := sorted(named - takes):
            raise NeedsError(f"No rows enter {first_few(rowless)}; layer inputs belong to weights and norm scales.")

    def moments(self, parameter: Parameter, on_detail: OnDetail = ignore_detail) -> tuple[Moments, ...] | None:
        """The moments of the caller's rows, one per expert; None if there are none for this parameter.

        Raises:
            NeedsError: some experts have rows for this parameter and others do not, or the rows cannot enter it.
        """
        covered = [e for e in self._experts if parameter.name in self._inputs.get(e, {})]
        if 0 < len(covered) < len(self._experts):
            missing = next(e for e in self._experts if e not in covered)
            raise NeedsError(
                f"There are layer inputs of {parameter.name!r} for {covered[0]!r} but not for {missing!r}."
            )
        return tuple(self._checked_rows(parameter, e) for e in self._experts) if covered else None

    def _checked_rows(self, parameter: Parameter, expert: str) -> Moments:
        rows = self._inputs[expert][parameter.name]
        shape = self._pretrained.infos[parameter.name].shape
        first = parameter.role == Role.NORM_SCALE or is_transposed(parameter)
        width = shape[0] if first else math.prod(shape[1:])
        what = f"Layer inputs of {parameter.name!r} for {expert!r}"
        if isinstance(rows, Moments):
            return self._check_moments(rows, width, parameter, what)
        if not isinstance(rows, Tensor) or rows.ndim != 2 or rows.shape[1] != width:
            shape_or_type = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            raise NeedsError(f"{what} must be a tensor (n, {width}); got {shape_or_type}.")
        if not len(rows):
            raise NeedsError(f"{what} hold no rows.")
        if not torch.isfinite(rows).all():
            raise NeedsError(f"{what} hold NaN or infinity.")
        return Moments.from_rows(
            rows.detach().to(self._device, rows.dtype if rows.dtype == torch.float64 else torch.float32)
        )

    def _check_moments(self, moments: Moments, width: int, parameter: Parameter, what: str) -> Moments:
        if moments.width != width or (moments.is_diagonal and parameter.role != Role.NORM_SCALE):
            kind = "of a scale" if moments.is_diagonal else "of rows"
            raise NeedsError(f"{what} must be of width {width}; got moments {kind} of width {moments.width}.")
        if not moments.count:
            raise NeedsError(f"{what} hold no rows.")
        if not all(torch.isfinite(tensor).all() for tensor in moments.tensors):
            raise NeedsError(f"{what} hold NaN or infinity.")
        return moments.to(self._device)


class CapturedInputs:
    """Layer inputs captured from exemplars, block by block as the merge advances through the network.

    Every expert receives its own task's exemplars (n, 3, h, w), in batches. Callers should request parameters in
    forward order: memory holds the tokens between two blocks and the moments of one block, and an earlier block costs a
    new pass from the start.

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
            n: Encoder.from_checkpoint(c, device, on_demand=True, fallback=like) for n, c in experts.items()
        }
        for name, encoder in self._encoders.items():
            check_images(f"The exemplars of {name!r}", exemplars[name], encoder.architecture.image_size)
        self._images = {name: exemplars[name].to(device, torch.float32) for name in self._encoders}
        self._threads = min(parallel_pieces(device), len(experts))
        self._report_lock = Lock()  # progress of several experts is reported one after the other
        self._next = 0  # the section that runs next
        self._tokens: dict[str, Tensor] = {}  # {expert: (n, T, w)}
        self._moments: list[dict[str, Moments]] = []  # of the section that ran last, per expert
        self._norms = {p.name for p in next(iter(experts.values())).parameters if p.role == Role.NORM_SCALE}
        groups = next(iter(self._encoders.values())).names.values()
        self._first = {name: group[0] for group in groups for name in group}  # q, k and v have the same rows

    def moments(self, parameter: Parameter, on_detail: OnDetail = ignore_detail) -> tuple[Moments, ...] | None:
        """The moments of the rows that enter this parameter, one per expert; None if no rows enter it."""
        self._run_to(self._section(parameter), on_detail)
        name = self._first[parameter.name]
        return tuple(moments[name] for moments in self._moments if name in moments) or None

    @property
    def tensors(self) -> Iterator[Tensor]:
        """The tensors in memory between two calls: images (n, 3, h, w), tokens (n, T, w), moments of one section."""
        yield from (*self._images.values(), *self._tokens.values())
        for of_expert in self._moments:
            for moments in of_expert.values():
                yield from moments.tensors

    def _section(self, parameter: Parameter) -> int:
        if parameter.block is not None:
            return parameter.block + 1
        return 0 if parameter.section == EMBEDDINGS else next(iter(self._encoders.values())).sections - 1

    def _run_to(self, section: int, on_detail: OnDetail) -> None:
        """Run forward (from the start, if ``section`` has already run) until the moments are those of ``section``."""
        if section < self._next - 1:
            self._next = 0
        with torch.no_grad():
            while self._next <= section:
                self._moments = []  # the moments of the section before are not needed any more
                try:
                    self._moments = self._run_experts(partial(self._pass_section, section, on_detail))
                except BaseException:  # some experts' tokens are one section ahead: the next call starts over
                    self._next, self._tokens = 0, {}
                    raise
                self._next += 1

    def _run_experts(self, run: Callable[[str], dict[str, Moments]]) -> list[dict[str, Moments]]:
        """The moments of every expert; several experts run at once, with one thread each."""
        if self._threads == 1:
            return [run(name) for name in self._encoders]
        prepare = partial(_prepare_thread, torch.is_grad_enabled())
        with limit_to_one_thread(), ThreadPoolExecutor(self._threads, initializer=prepare) as pool:
            return list(pool.map(run, self._encoders))

    def _pass_section(self, section: int, on_detail: OnDetail, name: str) -> dict[str, Moments]:
        loaded = self._encoders[name].load_section(self._next)
        return self._run(name, loaded, self._next, on_detail, record=self._next == section, move=True)

    def _run(
        self, expert: str, encoder: Encoder, section: int, on_detail: OnDetail, *, record: bool, move: bool
    ) -> dict[str, Moments]:
        """Pass one expert's tokens through a section; with ``move``, the section's outputs replace them.

        Returns the moments of the rows that entered the section's parameters, by name; empty without ``record``.
        """
        x = self._images[expert] if section == 0 else self._tokens[expert]
        moments: dict[str, Moments] = {}

        def add_rows(name: str, rows: Tensor) -> None:
            if self._first[name] == name:
                moments.setdefault(name, Moments(rows.shape[1], name in self._norms)).add(rows)

        size = batch_size(encoder.architecture, x.device)
        for start in range(0, len(x), size):
            with self._report_lock:
                on_detail(expert)
            part = slice(start, start + size)
            after = encoder.run(section, x[part], add_rows if record else None)
            if move and section == 0 and start == 0:
                self._tokens[expert] = after.new_empty((len(x), *after.shape[1:]))
            if move and section < encoder.sections - 1:
                self._tokens[expert][part] = after
        return moments


def _prepare_thread(grad: bool) -> None:
    """Prepare a thread that computes beside others; ``grad`` is whether the starting thread records gradients."""
    ONE_THREAD()
    torch.set_grad_enabled(grad)
