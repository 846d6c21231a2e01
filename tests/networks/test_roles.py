"""Inferred roles, blocks and ties against the classes and configurations of the libraries."""

from __future__ import annotations

import family_files
import full_sizes
import pytest
from family_files import KINDS
from module_roles import infos, list_misread

from merging.models.families import Role
from merging.models.formats.model_sources import open_checkpoint
from merging.models.network_facts import facts_of
from merging.models.network_inference import describe_parameters


@pytest.mark.parametrize("kind", KINDS)
def test_roles_are_those_of_the_modules(kind):
    model = family_files.make_model(kind)
    parameters = describe_parameters(infos(model), family="inferred")
    assert list_misread(model, parameters) == []
    assert len(parameters) == len({parameter.name for parameter in parameters})


@pytest.mark.parametrize("kind", KINDS)
def test_what_modules_tie_is_one_group(kind, files_of):
    model = family_files.make_model(kind)
    tied = getattr(model, "_tied_weights_keys", None) or {}
    stored = open_checkpoint(files_of(kind)[0]).infos
    facts = facts_of(infos(model))
    for name, source in tied.items():
        assert facts is not None and facts.tied_groups([name, source]), name
        if getattr(model.config, "tie_word_embeddings", True):
            assert not {name, source} <= stored.keys()  # the library writes it once


def test_experts_of_a_layer_are_matrices_in_files_and_stacks_in_modules(files_of):
    in_files = {p.role for p in open_checkpoint(files_of("Mixtral")[0]).parameters if ".experts." in p.name}
    model = family_files.make_model("Mixtral")
    in_modules = {p.role for p in describe_parameters(infos(model)) if ".experts." in p.name}
    assert in_files == {Role.LINEAR} and in_modules == {Role.STACK}


@pytest.mark.full
def test_roles_and_blocks_of_networks_at_full_size():
    """More than a hundred configurations without numbers; what is inferred otherwise is listed with its reason."""
    wrong, blocks, tensors = {}, {}, 0
    for name, make, stated in full_sizes.networks():
        model = full_sizes.on_meta(make)
        found = infos(model)
        parameters = describe_parameters(found, family="inferred")
        tensors += len(found)
        if odd := [one for one in list_misread(model, parameters) if not full_sizes.excused(one)]:
            wrong[name] = odd
        counted = len({(p.tower, p.block) for p in parameters if p.block is not None})
        if stated is not None and counted != full_sizes.OTHER_BLOCKS.get(name, stated):
            blocks[name] = (counted, stated)
    assert wrong == {} and blocks == {} and tensors > 35_000
