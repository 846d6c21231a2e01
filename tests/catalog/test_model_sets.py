"""Sets of models: kept, named by their content, refused when they make no sense."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from merging.base.errors import StoreError
from merging.sharing.catalog.model_set_store import (
    ModelSet,
    delete_model_set,
    list_model_sets,
    make_model_set,
    make_usable_name,
    store_model_set,
)


def kept(root: Path, **changes: object) -> ModelSet:
    about = {"title": "Mine", "pretrained": "models:clip/p", "experts": {"a": "models:clip/a", "b": "models:clip/b"}}
    made = make_model_set(**(about | changes))  # type: ignore[arg-type]
    store_model_set(root, made)
    return made


def test_a_set_survives_and_is_named_by_its_content(tmp_path: Path) -> None:
    made = kept(tmp_path)
    assert list_model_sets(tmp_path) == [made]
    renamed = kept(tmp_path, title="Yours")
    assert renamed.id == made.id and list_model_sets(tmp_path) == [renamed]
    other = kept(tmp_path, experts={"b": "models:clip/b", "a": "models:clip/a"})
    assert other.id != made.id  # the order of experts is part of a run, too
    delete_model_set(tmp_path, made.id)
    delete_model_set(tmp_path, "../../etc/passwd")
    assert list_model_sets(tmp_path) == [other]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"title": " "}, "title"),
        ({"title": "a\nb"}, "title"),
        ({"pretrained": ""}, "pretrained"),
        ({"experts": {}}, "Choose experts"),
        ({"experts": {"a,b": "x"}}, "cannot be named"),
        ({"experts": {"a=b": "x"}}, "cannot be named"),
        ({"experts": {"a\u202eb": "x"}}, "cannot be named"),
        ({"experts": {"a": "models:clip/p"}}, "among the experts"),
        ({"experts": {"a": "x", "b": "x"}}, "same file"),
    ],
)
def test_a_set_that_makes_no_sense_is_refused(tmp_path: Path, changes: Mapping[str, object], says: str) -> None:
    with pytest.raises(StoreError, match=says):
        kept(tmp_path, **changes)


def test_names_of_files_become_names_of_experts() -> None:
    assert [make_usable_name(name) for name in ("a,b=c", " x\ny ", "\u202e", "n" * 99)] == [
        "a b c",
        "x y",
        "expert",
        "n" * 60,
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"title": 1}', '{"title": "x", "pretrained": "p", "experts": [["a"]]}']
)
def test_a_damaged_set_is_no_set(tmp_path: Path, text: str) -> None:
    made = kept(tmp_path)
    (tmp_path / "sets" / f"{made.id}.json").write_text(text)
    assert list_model_sets(tmp_path) == []


def test_a_server_for_several_people_offers_listed_models_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, typed = kept(tmp_path), kept(tmp_path, pretrained="/home/me/p.pt")
    assert {made.id for made in list_model_sets(tmp_path)} == {listed.id, typed.id}
    monkeypatch.setenv("MERGESCOPE_SHARED", "1")
    assert list_model_sets(tmp_path) == [listed]
