"""The catalogue against its schema, the prompts' keys and the papers' figures; and what a wrong file is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from merging.base.errors import TaskError
from merging.images.prompt_sets import read_prompts
from merging.recipes.papers.published_figures import FIGURES, IN_DOMAIN_TASKS, OUT_OF_DOMAIN_TASKS
from merging.recipes.presets import find_preset
from merging.sharing.published.catalogue_parts import (
    CATALOGUE,
    DATA_SET,
    MODEL,
    PACKED,
    PARTS,
    SPLIT,
    TEST,
    read_parts,
    read_shared_parts,
)
from merging.sharing.published.experiment_catalogue import (
    HUB,
    Experiment,
    list_experiment_keys,
    list_experiments,
    read_experiment,
)
from merging.sharing.published.row_variants import find_printed_experts

KEYS = (
    "clip-b32-8", "clip-b16-8", "clip-l14-8", "clip-b32-14", "clip-b32-20", "clip-b16-8-lora", "clip-b32-8-drive",
    "smoke",
)  # fmt: skip
GIGABYTES = {  # models and test sets in domain, rounded, as they are announced
    "clip-b32-8": (3.4, 8.4), "clip-b16-8": (3.4, 8.4), "clip-l14-8": (11.4, 8.4), "clip-b32-14": (5.5, 12.3),
    "clip-b32-20": (7.6, 13.6), "clip-b16-8-lora": (0.6, 8.4), "clip-b32-8-drive": (4.7, 8.4), "smoke": (1.3, 0.012),
}  # fmt: skip


def test_every_experiment_is_there_and_can_be_read() -> None:
    assert list_experiment_keys() == KEYS
    assert [one.key for one in list_experiments()] == list(KEYS)


@pytest.mark.parametrize("one", list_experiments(), ids=lambda one: one.key)
def test_an_experiment_has_the_tasks_of_its_key_and_rows_of_presets(one: Experiment) -> None:
    counts = {"smoke": 2, "clip-b32-14": 14, "clip-b32-20": 20}
    assert len(one.tasks) == counts.get(one.key, 8)
    assert one.is_papers_eight == (len(one.tasks) == 8)
    assert len({row.key for row in one.rows}) == len(one.rows) > 2
    for row in one.rows:
        find_preset(row.preset)
    if len(one.tasks) == 8:
        assert [each.column for each in one.outside] == list(OUT_OF_DOMAIN_TASKS) and one.off_by_default == (
            "imagenet",
        )


@pytest.mark.parametrize("one", list_experiments(), ids=lambda one: one.key)
def test_sizes_are_those_announced(one: Experiment) -> None:
    known, used = read_shared_parts().repositories, next(iter(one.models.values()))
    uses = {(use.repository, use.part) for use in (used.pretrained, *([used.text] if used.text else []))}
    uses |= {(use.repository, use.part) for use in (used.experts[task.key] for task in one.tasks)}
    models = sum(known[name].parts[part].about or 0 for name, part in uses)
    data = sum(known[task.repository].parts[TEST].about or 0 for task in one.tasks)
    announced = GIGABYTES[one.key]
    assert models / 1e9 == pytest.approx(announced[0], rel=0.03)
    assert data / 1e9 == pytest.approx(announced[1], rel=0.03)


@pytest.mark.parametrize("one", list_experiments(), ids=lambda one: one.key)
def test_the_gate_has_a_printed_accuracy_for_every_expert(one: Experiment) -> None:
    for used in one.models.values():
        printed = find_printed_experts(one, used.tower, used.authors)
        assert list(printed) == [task.key for task in one.tasks]
        assert all(50 < value <= 100 for value in printed.values())


def test_test_sets_have_prompts_and_the_papers_columns() -> None:
    sets = read_shared_parts().test_sets
    assert {one.column for one in sets.values()} - {None} == {*IN_DOMAIN_TASKS, *OUT_OF_DOMAIN_TASKS}
    for one in sets.values():
        names = read_prompts(one.prompts).class_names if one.prompts else one.classes
        assert len(names) > 1 and read_shared_parts().repositories[one.repository].kind == DATA_SET
    assert sets["emnist_letters"].prompts is None and len(sets["emnist_letters"].classes) == 26


def test_a_test_set_in_a_folder_of_its_own_names_it_as_its_configuration() -> None:
    """Other configurations may lie beside it in a cache that other programs use as well."""
    for one in read_shared_parts().test_sets.values():
        files = read_shared_parts().repositories[one.repository].parts[TEST].files
        folders = {file.name.rpartition("/")[0] for file in files} - {"", "data", "test"}
        assert folders == ({one.configuration} if one.configuration else set()), one.key
    assert sum(bool(one.configuration) for one in read_shared_parts().test_sets.values()) == 5


def test_no_repository_is_there_twice_and_each_is_used() -> None:
    text = (PARTS / "repositories.json").read_text("utf-8")
    used = {use.repository for each in read_shared_parts().models.values() for use in each.experts.values()}
    used |= {each.pretrained.repository for each in read_shared_parts().models.values()}
    used |= {each.text.repository for each in read_shared_parts().models.values() if each.text}
    used |= {one.repository for one in read_shared_parts().test_sets.values()}
    assert used == set(read_shared_parts().repositories)
    assert all(text.count(f'"{name}": {{') == 1 for name in used)


def test_what_nobody_has_read_is_null_and_what_was_read_is_dated() -> None:
    repositories = read_shared_parts().repositories.values()
    assert all(one.revision is None for one in repositories)  # no commit was seen
    assert {one.read for one in repositories} == {None, "2026-11"}
    assert all((one.license is None) == (one.read is None) for one in repositories)
    seen = [file for one in repositories for part in one.parts.values() for file in part.files if file.begins]
    assert len(seen) == 4 and all(file.size == 453_892_355 and file.sha256 is None for file in seen)


def test_sources_of_rows_that_run_twice_say_how_they_group() -> None:
    twice = {row.preset for one in list_experiments() for row in one.rows if row.grouping_matters}
    assert twice == {"task_arithmetic_lwptv", "ties_lwptv", "pcb_lwptv", "drm_h", "tsv_m", "iso_c", "iso_cts", "wudi"}
    assert {source.grouping for source in read_shared_parts().sources.values()} == {PACKED, SPLIT}
    assert read_shared_parts().sources["FusionBench"].grouping == SPLIT
    named = {figure.source.partition(",")[0] for figure in FIGURES}
    assert set(read_shared_parts().sources) <= named


# Wrong files


def copy(folder: Path, file: str, change: Any) -> Path:
    """A copy of the catalogue in which ``change`` was made to the plain data of one file."""
    made = folder / "catalogue"
    shutil.copytree(CATALOGUE, made)
    data = json.loads((made / file).read_text("utf-8"))
    change(data)
    (made / file).write_text(json.dumps(data), "utf-8")
    return made


def entry(data: Any, *path: Any, **fields: Any) -> None:
    for name in path:
        data = data[name]
    for name, value in fields.items():
        if value is None and name in data:
            del data[name]
        else:
            data[name] = value


SUN = "tanganke/clip-vit-base-patch32_sun397"


@pytest.mark.parametrize(
    ("file", "path", "fields", "problem"),
    [
        ("repositories", ("repositories", SUN), {"kind": "modle"}, f"{SUN}: field kind: one of"),
        ("repositories", ("repositories", SUN), {"kind": None}, f"{SUN}: field kind is missing"),
        ("repositories", ("repositories", SUN), {"revison": "x"}, "unknown field 'revison'. Did you mean 'revision'?"),
        ("repositories", ("repositories", SUN), {"revision": "main"}, "field revision: a commit of 40 digits, or null"),
        ("repositories", ("repositories", SUN), {"license": "MIT", "read": ""}, "field read: text is needed"),
        (
            "repositories",
            ("repositories", SUN, "parts", "model"),
            {"about": 1.5},
            "field about: a whole number above 0",
        ),
        ("repositories", ("repositories", SUN, "parts", "model"), {"basis": "guess"}, "field basis: one of"),
        (
            "repositories",
            ("repositories", SUN, "parts", "model", "files", 0),
            {"sha256": "ab"},
            "field sha256: 64 hexa",
        ),
        (
            "repositories",
            ("repositories", SUN, "parts", "model", "files", 0),
            {"name": "../x"},
            "field name: a path ins",
        ),
        ("models", ("models", "hub-b32"), {"tower": "ViT-B/8"}, "models.json, hub-b32: field tower: one of"),
        ("models", ("models", "hub-b32", "experts"), {"dtd": "nobody/none"}, "nobody/none with a part 'model' is not"),
        ("test_sets", ("test_sets", "mnist"), {"prompts": "mnits"}, 'field prompts: one of "cars"'),
        ("test_sets", ("test_sets", "mnist"), {"column": "Mnist"}, "Did you mean 'MNIST'?"),
        ("test_sets", ("test_sets", "mnist"), {"classes": ["0"], "templates": ["{}"]}, "prompts, or classes and templ"),
        ("sources", ("sources", "LOT"), {"grouping": "both"}, "sources.json, LOT: field grouping: one of"),
        (
            "repositories",
            ("repositories", "ylecun/mnist"),
            {"read": "2026-11"},
            "field read: the license and the day on which it was read",
        ),
        ("rows", ("rows", "ties"), {"values": [1]}, "rows.json, ties: field values: a mapping is needed"),
    ],
)
def test_a_wrong_part_names_its_file_entry_and_field(tmp_path, file, path, fields, problem) -> None:
    made = copy(tmp_path, f"parts/{file}.json", lambda data: entry(data, *path, **fields))
    with pytest.raises(TaskError) as error:
        read_parts(made / "parts")
    assert problem in str(error.value) and str(error.value).startswith(f"{file}.json")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tasks": ["mnist", "eurosat2"]}, "smoke.json: field tasks: a key of the shared parts"),
        ({"tasks": ["mnist", "mnist"]}, "field tasks: 'mnist' is repeated"),
        ({"tasks": []}, "field tasks: at least one task"),
        ({"models": {"hub": "hub-b33"}}, "Did you mean 'hub-b32'?"),
        ({"models": {"whose": "hub-b32"}}, "field models: models by hub or published"),
        ({"models": {"hub": "hub-b16"}, "tasks": ["kmnist"]}, "hub-b16 has no expert for 'kmnist'"),
        ({"outside": ["mnist"]}, "field outside: 'mnist' is one of the tasks"),
        ({"off_by_default": ["imagenet"]}, "field off_by_default: 'imagenet' is not among"),
        ({"values": {"lot": {}}}, "field values: 'lot' is not one of the rows"),
        (
            {"printed": {"source": "FusionBench", "pretrained": {}, "experts": {"mnist": 101}}},
            "experts.mnist: a number",
        ),
        ({"printed": {"source": "FusionBench", "pretrained": {}, "experts": {"mnist": 1}}}, "exactly the tasks"),
    ],
)
def test_a_wrong_experiment_names_its_field(tmp_path, fields, problem) -> None:
    made = copy(tmp_path, "smoke.json", lambda data: entry(data, **fields))
    with pytest.raises(TaskError) as error:
        read_experiment("smoke", made)
    assert problem in str(error.value)


def test_files_that_are_no_catalogue_are_named(tmp_path) -> None:
    (tmp_path / "odd.json").write_text("{", "utf-8")
    (tmp_path / "twice.json").write_text('{"a": 1, "a": 2}', "utf-8")
    (tmp_path / "list.json").write_text("[]", "utf-8")
    for key, problem in (("odd", "odd.json is not JSON"), ("twice", "'a' is repeated"), ("list", "a mapping is")):
        with pytest.raises(TaskError, match=problem):
            read_experiment(key, tmp_path)
    with pytest.raises(TaskError, match="Did you mean 'smoke'"):
        read_experiment("smoky")


def test_the_first_models_are_those_of_the_hub_where_there_are_any() -> None:
    firsts = {one.key: next(iter(one.models)) for one in list_experiments()}
    assert [key for key, whose in firsts.items() if whose != HUB] == ["clip-b32-8-drive"]
    assert {one.kind for one in read_shared_parts().repositories.values()} == {MODEL, DATA_SET}
