"""The reader of untrusted YAML: what it takes and refuses, with libyaml's parser and with that in Python."""

from __future__ import annotations

import importlib.util
import time
from types import ModuleType

import pytest
import yaml

from merging.base.errors import RecipeError
from merging.base.files import plain_yaml

BIG = f"{{{', '.join(map(str, range(15_000)))}}}"  # as many keys as a text may have
TEXTS = {  # text -> its data, or a part of the message
    "a: 1\nb: [x, 2.5, true, null]": {"a": 1, "b": ["x", 2.5, True, None]},
    "title: 2001-02-03": {"title": "2001-02-03"},
    "a: 'x: y'  # a comment": {"a": "x: y"},
    "? a\n: b": {"a": "b"},
    "": None,
    "a: \U0001f600\u2028b": "in line 2: ",  # it ends a line
    "a: 1\nb: [1, 2": "in line 2: ",
    "a: 1\nbad": "in line 2: ",
    "a: 1\rbad\r": "in line 2: ",
    "[": "in line 1: ",
    "a: &x 1\nb: *x": "line 1: anchors and aliases",
    "a: 1\nb: 2\na: 3": "'a' is written twice",
    "a: !!python/name:os.system": "tags such as",
    "a: !x 1": "tags such as",
    f"a: {'1' * 50}": "too many digits",
    "---\na\n---\nb": "another document",
    "[" * 50_000: "nested more than 20 deep",
    "{a: " * 20_000: "nested more than 20 deep",
    "- " * 50_000: "nested more than 20 deep",
    "a: \ud800": "cannot be parsed",
    "a: \x00": "cannot be parsed",
    "x" * 100_001: "at most 100,000 are read",
}


@pytest.fixture(scope="module", params=[True, False], ids=["libyaml", "python"])
def reader(request: pytest.FixtureRequest) -> ModuleType:
    """The module, as it is where PyYAML has libyaml, and where it has not."""
    if request.param:
        assert yaml.__with_libyaml__
        return plain_yaml
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "__with_libyaml__", False)
        patch.delattr(yaml, "CSafeLoader")
        spec = importlib.util.spec_from_file_location("python_yaml", plain_yaml.__file__)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[:30])
def test_a_text_is_its_data_or_is_refused(text: str, reader: ModuleType) -> None:
    expected = TEXTS[text]
    if not isinstance(expected, str):
        assert reader.read_plain_yaml(text) == expected
        return
    with pytest.raises(RecipeError, match=r"^The recipe ") as caught:
        reader.read_plain_yaml(text)
    assert expected in str(caught.value)


@pytest.mark.parametrize(("text", "data"), [("a:\tb", {"a": "b"}), ("[1,\t2]", [1, 2]), ("{a:}", None)])
def test_what_libyaml_reads_otherwise(text: str, data: object) -> None:
    if data is None:
        with pytest.raises(RecipeError, match="in line 1"):
            plain_yaml.read_plain_yaml(text)
    else:
        assert plain_yaml.read_plain_yaml(text) == data


def test_many_keys_are_compared_in_little_time() -> None:
    start = time.thread_time()
    assert len(plain_yaml.read_plain_yaml(BIG)) == 15_000
    assert time.thread_time() - start < 10  # every key against every other took 30


@pytest.mark.parametrize("data", [{"a b": ["\u2028", "é", "\x07", " x", "1", "true", ""]}, ["\U0001f600", 1.5, None]])
def test_what_is_written_is_read_back(data: object, reader: ModuleType) -> None:
    assert reader.read_plain_yaml(reader.write_yaml(data)) == data
