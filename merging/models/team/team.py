"""Teams: experts and their pretrained model after their differences are resolved, with notes on every change.

In a team, tensors have the pretrained model's names. ``form_team`` resolves each kind of difference by a fixed policy,
a step of ``_TeamBuilder``; a difference that no step can resolve is a ``Misfit``. ``TeamBase`` and ``TeamMember`` are
views of the opened checkpoints, which are their ``inner`` ones.

Two kinds of tensors are often confused: *unused* tensors are in files of older versions, and the network no longer has
them; *untouched* tensors are changed by none of the adapters, in a team whose experts are all adapters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from torch import Tensor

from merging.base.errors import FamilyError
from merging.base.numerics.low_rank import ThinFactor
from merging.base.text import first_few, plural
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import CheckpointView, DerivedTensor, rename_tensors
from merging.models.expert_names import MatchedNames, keep_name, match_names
from merging.models.families import UNMERGED, Parameter, Role
from merging.models.formats.adapter_checkpoint import AdaptedCheckpoint
from merging.models.formats.tied_tensors import find_equal_tensor, is_equal
from merging.models.network_facts import facts_of
from merging.models.network_inference import describe_parameters
from merging.models.team import task_heads, vocabulary
from merging.models.team.partial_heads import find_partial_heads
from merging.models.team.quantization import quantization_format
from merging.models.team.vocabulary_choices import COMMON, PRETRAINED

Heads = Mapping[str, Mapping[str, Tensor]]  # {expert: {tensor: value}}


@dataclass(frozen=True, slots=True)
class Misfit:
    """A difference that no policy resolves.

    ``kind`` is a key of ``fit_report.FIX_BY_KIND``; ``sentence`` lacks its subject, the expert.
    """

    expert: str
    tensor: str
    kind: str
    sentence: str


@dataclass(frozen=True)
class Team:
    """A pretrained model and its experts under one set of names.

    ``heads`` are the tensors of each task's own head, {expert: {name in the team: name in the file}}.
    """

    pretrained: Checkpoint
    experts: Mapping[str, Checkpoint]
    heads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    untouched: int = 0  # number of tensors that no adapter changes; 0 unless all experts are adapters


class TeamBase(CheckpointView):
    """The pretrained model of a team: some tensors are left out, and some have a new role."""

    def __init__(self, inner: Checkpoint, tensors: Mapping[str, DerivedTensor], new_roles: Mapping[str, Role]) -> None:
        super().__init__(inner, tensors, keeps_digest=True)
        self._new_roles = dict(new_roles)
        self.team = Team(self, {})  # replaced by the team with the experts as soon as these are ready

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every tensor with its role in this team."""
        return tuple(
            replace(parameter, role=self._new_roles.get(parameter.name, parameter.role))
            for parameter in super().parameters
        )


class TeamMember(CheckpointView):
    """An expert under the pretrained model's names, without the head of its task.

    ``stored`` is {name in the team: name in the expert's file} of all tensors from that file.
    """

    def __init__(
        self, inner: Checkpoint, tensors: Mapping[str, DerivedTensor], stored: Mapping[str, str], notes: tuple[str, ...]
    ) -> None:
        super().__init__(inner, tensors, keeps_digest=True)
        self.stored = dict(stored)
        self.notes += notes

    def thin_factors(self, name: str, pretrained: Checkpoint) -> ThinFactor | None:
        is_from_file = self.stored.get(name) == name and self.inner.infos[name] == self.infos[name]
        return self.inner.thin_factors(name, pretrained) if is_from_file else None


def form_team(
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    vocabulary: str = COMMON,
    *,
    count_untouched: bool = False,
) -> Team:
    """The team of a network other than CLIP; models of CLIP, or of a team formed before, are unchanged.

    ``vocabulary``, one of ``VOCABULARIES``, is the policy for tables with a row per token. If all experts are adapters,
    tensors that no adapter changes are copied from the pretrained model and left out of the merge; with
    ``count_untouched`` they are merged, as zero changes, so that they count in thresholds over all tensors.
    """
    if isinstance(pretrained, TeamBase):
        return replace(pretrained.team, pretrained=pretrained, experts=experts)
    if not experts or not pretrained.is_inferred:  # experts of CLIP got its names when they were opened
        return Team(pretrained, experts)
    formats = {name: title for name, expert in experts.items() if (title := quantization_format(expert.infos))}
    if formats:
        text = "is quantized ({}); task vectors need full numbers"
        misfits = tuple(Misfit(name, "", "quantized", text.format(title)) for name, title in formats.items())
        return Team(pretrained, experts, misfits=misfits)
    try:
        return _TeamBuilder(pretrained, experts, vocabulary, count_untouched).build()
    except FamilyError:  # the fit report shows the message
        return Team(pretrained, experts)


def head_tensors(pretrained: Checkpoint) -> dict[str, dict[str, Tensor]]:
    """The heads of the team of a pretrained model: {expert: {tensor: value (*S), any shape}}; empty for CLIP."""
    if not isinstance(pretrained, TeamBase):
        return {}
    team = pretrained.team
    return {
        name: {tensor: _checkpoint_of_file(team.experts[name]).read(stored) for tensor, stored in stored_names.items()}
        for name, stored_names in team.heads.items()
    }


def _checkpoint_of_file(expert: Checkpoint) -> Checkpoint:
    return expert.inner if isinstance(expert, TeamMember) else expert


@dataclass
class _TeamBuilder:
    """A team while it is formed; ``build`` has the steps in order."""

    pretrained: Checkpoint
    experts: Mapping[str, Checkpoint]
    vocabulary: str  # one of ``VOCABULARIES``
    count_untouched: bool
    names: dict[str, MatchedNames] = field(default_factory=dict)
    derived: dict[str, dict[str, DerivedTensor]] = field(
        default_factory=dict
    )  # {expert: {tensor: value that replaces that of the file}}
    new_roles: dict[str, Role] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    misfits: list[Misfit] = field(default_factory=list)

    def build(self) -> Team:
        """The team, with all differences resolved or listed as misfits."""
        base = self.pretrained
        self.base_parameters = {p.name: p for p in base.parameters}
        self.facts = facts_of(base.infos)
        later = self.facts.later_name if self.facts else keep_name
        self.names = {name: match_names(base.infos, expert.infos, later) for name, expert in self.experts.items()}
        self.derived = {name: {} for name in self.experts}
        self.expert_parameters = {name: self._describe_parameters(name) for name in self.experts}
        self._drop_tied()
        left_out = self._drop_buffers()
        per_task = self._find_heads()
        self._copy_missing(per_task)
        self._match_vocabularies()
        self._note_statistics()
        untouched = self._copy_untouched()
        view = TeamBase(
            base, rename_tensors(base, {name: name for name in base.infos if name not in left_out}), self.new_roles
        )
        members = {name: self._make_member(name, per_task) for name in self.experts}
        heads = {
            name: {team_name: stored for team_name, stored in self.names[name].stored.items() if team_name in per_task}
            for name in self.experts
        }
        view.team = Team(view, members, heads if per_task else {}, tuple(self.notes), tuple(self.misfits), untouched)
        return view.team

    def _describe_parameters(self, name: str) -> dict[str, Parameter]:
        """{new name: parameter} of an expert's tensors."""
        expert = self.experts[name]
        infos = {team_name: expert.infos[stored] for team_name, stored in self.names[name].stored.items()}
        return {parameter.name: parameter for parameter in describe_parameters(infos, name)}

    def _make_member(self, name: str, left_out: frozenset[str]) -> Checkpoint:
        """An expert in the team; the checkpoint itself if it does not change."""
        expert, names = self.experts[name], self.names[name]
        stored = {team_name: file_name for team_name, file_name in names.stored.items() if team_name not in left_out}
        if not self.derived[name] and not names.notes and stored == {n: n for n in expert.infos}:
            return expert
        return TeamMember(expert, rename_tensors(expert, stored) | self.derived[name], stored, names.notes)

    def _is_outside_blocks(self, name: str) -> bool:
        """Whether a tensor is outside all blocks of the pretrained model, or of the first expert that has it."""
        parameters = [own[name] for own in (self.base_parameters, *self.expert_parameters.values()) if name in own]
        return bool(parameters) and parameters[0].block is None

    # --- tensors that are stored twice, and buffers -------------------------------------------------------------------

    def _drop_tied(self) -> None:
        """Remove one of two equal tables of an expert, and add a table that only the pretrained model stores twice.

        Tied tables, such as the input and output embeddings, are one table that two modules of the network share.
        """
        for name, expert in self.experts.items():
            names, base = self.names[name].stored, self.pretrained  # {name in the team: name in the file}
            for tensor in [
                tensor
                for tensor in names
                if tensor not in base.infos and self._may_be_tied(self.expert_parameters[name], tensor)
            ]:
                equal_tensor = find_equal_tensor(
                    expert, names[tensor], [names[other] for other in names if other in base.infos]
                )
                if equal_tensor is not None or self.vocabulary == PRETRAINED:
                    del names[tensor]
                elif not all(tensor in other.stored for other in self.names.values()):
                    sentence = "has its own output embedding; the others share the input embedding"
                    self.misfits.append(Misfit(name, tensor, "untied", sentence))
                    del names[tensor]
            for tensor in [
                tensor
                for tensor in base.infos
                if tensor not in names and self._may_be_tied(self.base_parameters, tensor)
            ]:
                equal_tensor = find_equal_tensor(base, tensor, [other for other in base.infos if other in names])
                if equal_tensor is not None:
                    self.derived[name] |= {tensor: rename_tensors(expert, {tensor: names[equal_tensor]})[tensor]}

    def _may_be_tied(self, parameters: Mapping[str, Parameter], name: str) -> bool:
        parameter = parameters.get(name)
        if parameter is None or parameter.block is not None:
            return False
        is_known = any(name.endswith(ending) for group in (self.facts.tied if self.facts else ()) for ending in group)
        return is_known or parameter.role == Role.VOCABULARY

    def _drop_buffers(self) -> set[str]:
        """Leave out tensors that only some versions have: buffers, and tensors that the network does not use any more.

        Returns the pretrained model's tensors that are left out.
        """
        for name in self.experts:
            stored = self.names[name].stored
            for tensor in [n for n in stored if n not in self.pretrained.infos]:
                if self._is_unused(tensor) or self.expert_parameters[name][tensor].role == Role.BUFFER:
                    del stored[tensor]
        present = {tensor for names in self.names.values() for tensor in names.stored}
        unused = {
            n
            for n, p in self.base_parameters.items()
            if n not in present and p.role != Role.BUFFER and self._is_unused(n)
        }
        if unused:
            verb = "was" if len(unused) == 1 else "were"
            tensors = plural(len(unused), "tensor")
            self.notes.append(f"pretrained: {tensors} that the model no longer has {verb} left out.")
        return unused

    def _is_unused(self, name: str) -> bool:
        """Whether the network no longer has a tensor, which files of older versions store."""
        return self.facts is not None and self.facts.is_unused(name)

    # --- tensors that are not merged ----------------------------------------------------------------------------------

    def _find_heads(self) -> frozenset[str]:
        """Names of the tensors of which each task keeps its own."""
        shapes = [
            {team_name: self.experts[name].infos[stored].shape for team_name, stored in names.stored.items()}
            for name, names in self.names.items()
        ]
        base = {name: info.shape for name, info in self.pretrained.infos.items()}
        words = self.facts.heads if self.facts else task_heads.HEAD_WORDS
        order = list(dict.fromkeys([*base, *(team_name for own in shapes for team_name in own)]))
        result = task_heads.find_heads(base, shapes, [name for name in order if self._is_outside_blocks(name)], words)
        self.notes += result.notes(order)
        self.new_roles |= dict.fromkeys(result.per_task & base.keys(), Role.HEAD)
        return result.per_task

    def _copy_missing(self, per_task: frozenset[str]) -> None:
        """Copy tensors outside the blocks that no expert has, such as pretraining heads, from the pretrained model.

        A head that only some of the experts have is a misfit.
        """
        names = {name: {*self.names[name].stored, *self.derived[name]} for name in self.experts}
        outer_tensors = [name for name, p in self.base_parameters.items() if p.block is None and p.role != Role.BUFFER]
        outer_tensors = [name for name in outer_tensors if name not in per_task]
        for head in find_partial_heads(
            outer_tensors, (n for n, p in self.base_parameters.items() if p.block is not None), names
        ):
            self.new_roles |= dict.fromkeys(head.tensors, Role.BUFFER)
            for name, sentence in head.sentences(partial(self._is_pretrained, head.tensors)):
                self.misfits.append(Misfit(name, head.tensors[0], "partial head", sentence))
        lacking = [name for name in outer_tensors if not any(name in expert_names for expert_names in names.values())]
        if lacking:
            self.new_roles |= dict.fromkeys(lacking, Role.BUFFER)
            tensors = plural(len(lacking), "tensor that no expert has is", "tensors that no expert has are")
            self.notes.append(f"{tensors} the pretrained model's: {first_few(lacking)}.")

    def _is_pretrained(self, tensors: Iterable[str], name: str) -> bool:
        """Whether these tensors of an expert hold the pretrained model's numbers."""
        base, expert, stored = self.pretrained, self.experts[name], self.names[name].stored
        return all(tensor in stored and is_equal(base, tensor, expert, stored[tensor]) for tensor in tensors)

    # --- vocabularies, statistics -------------------------------------------------------------------------------------

    def _match_vocabularies(self) -> None:
        """Give every table with a row per token the pretrained model's number of rows, or copy it from that model."""
        tables = [
            name for name, p in self.base_parameters.items() if p.role == Role.VOCABULARY and name not in self.new_roles
        ]
        if self.vocabulary == PRETRAINED:
            sizes = {self.pretrained.infos[name].shape[0] for name in tables}
            copied = [*tables, *self._row_biases(sizes)]
            self.new_roles |= dict.fromkeys(copied, Role.BUFFER)
            self.notes += [f"{first_few(copied)}: the pretrained model's, as asked for."] if copied else []
            for name in self.experts:
                self.derived[name] |= {t: rename_tensors(self.pretrained, {t: t})[t] for t in copied}
            return
        for name in self.experts:
            self._use_common_rows(name, tables)

    def _row_biases(self, sizes: set[int]) -> list[str]:
        """Biases (tokens,) outside the blocks, whose length is one of ``sizes``."""
        infos = self.pretrained.infos
        return [
            name
            for name, p in self.base_parameters.items()
            if p.block is None
            and len(infos[name].shape) == 1
            and infos[name].shape[0] in sizes
            and name.endswith("bias")
        ]

    def _use_common_rows(self, name: str, tables: Sequence[str]) -> None:
        """Give an expert's tables as many rows as the pretrained model's have, if both number their tokens alike."""
        expert, stored, base = self.experts[name], self.names[name].stored, self.pretrained
        own_tables = [table for table in tables if table in stored]
        row_counts: dict[str, int] = {}
        for table in own_tables:
            base_shape, expert_shape = base.infos[table].shape, expert.infos[stored[table]].shape
            if len(expert_shape) == 2 and base_shape[0] != expert_shape[0] and base_shape[1:] == expert_shape[1:]:
                row_counts[table] = expert_shape[0]
        if not own_tables:
            return
        table = next(iter(row_counts), own_tables[0])
        rows = base.infos[table].shape[0]
        comparison = vocabulary.compare_tokenizers(base.folder, expert.folder, rows)
        if comparison is None and row_counts:
            comparison = vocabulary.compare_rows(base, table, expert, stored[table])
        if comparison is None and not (
            isinstance(expert, AdaptedCheckpoint) and expert.changed_tensors.isdisjoint(own_tables)
        ):
            self.notes.append(vocabulary.UNCHECKED_NOTE.format(name))
        if comparison is not None and not comparison.is_alike:
            self.misfits.append(Misfit(name, table, "other tokens", vocabulary.difference_text(comparison)))
        if comparison is None or not row_counts:
            return
        self.notes.append(vocabulary.describe_left_out(name, rows, row_counts[table], comparison))
        sizes = {(base.infos[resized].shape[0], size) for resized, size in row_counts.items()}  # (pretrained, expert)
        biases = [
            bias
            for bias in self._row_biases({base_size for base_size, _ in sizes})
            if bias in stored and (base.infos[bias].numel, expert.infos[stored[bias]].numel) in sizes
        ]
        for resized in (*row_counts, *biases):
            self.derived[name][resized] = vocabulary.common_rows(expert, stored[resized], base, resized)

    def _copy_untouched(self) -> int:
        """Copy tensors that no adapter changes from the pretrained model. Returns their number."""
        adapters = [expert for expert in self.experts.values() if isinstance(expert, AdaptedCheckpoint)]
        if len(adapters) < len(self.experts):
            return 0
        changed_tensors = frozenset[str]().union(*(adapter.changed_tensors for adapter in adapters))
        untouched = [
            name
            for name, p in self.base_parameters.items()
            if p.role not in UNMERGED and name not in changed_tensors | self.new_roles.keys()
        ]
        if untouched and not self.count_untouched:
            self.new_roles |= dict.fromkeys(untouched, Role.BUFFER)
            tensors = plural(len(untouched), "tensor that no adapter changes is", "tensors that no adapter changes are")
            self.notes.append(f"{tensors} the pretrained model's and do not count.")
        return len(untouched)

    def _note_statistics(self) -> None:
        """Note that running statistics are averaged, not merged."""
        count = sum(parameter.role == Role.STATISTIC for parameter in self.base_parameters.values())
        if count:
            self.notes.append(
                f"{count} running statistics are the mean of the experts'; measure them again on data: "
                "merging.recalibrate(model, batches)."
            )
