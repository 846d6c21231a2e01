"""Published data sets are read as they lie on the Hub, in its cache and in that of the datasets library."""

from __future__ import annotations

import json
import shutil

import published_layouts as layouts
import pyarrow.parquet as pq
import pytest
from PIL import Image

from merging.base.errors import TaskError
from merging.images.benchmarks.build.class_names import name_classes
from merging.images.benchmarks.build.data_set_split import split_data_set
from merging.images.data_sets.data_set_formats import open_data
from merging.images.data_sets.hub_cache import find_snapshot, title
from merging.images.data_sets.image_references import read_encoded
from merging.images.preprocess import read_image
from merging.images.prompt_sets import read_prompts

TRAINED = {"train", "test"}
PARTS = {
    "flowers102": TRAINED | {"validation"}, "food101": {"train", "validation"}, "pcam": TRAINED | {"validation"},
    "rendered_sst2": TRAINED | {"validation"}, "imagenet": {"test"},
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Key -> folder of every published data set; do not change them."""
    return layouts.write_all(tmp_path_factory.mktemp("published"))


@pytest.mark.parametrize("key", layouts.WRITERS)
def test_every_published_set_is_read_with_its_prompts(key, written):
    data, known = open_data(written[key]), read_prompts(key)
    assert set(data.parts) == PARTS.get(key, TRAINED)
    test = split_data_set(data, key, 0).test[0]
    assert test == ("validation" if key == "food101" else "test")
    labels = layouts.labels(len(known.class_names), "test" if test == "test" else "validation")
    assert data.parts[test].tolist() == labels
    classes = name_classes(data, None, known)
    if key != "fer2013":  # whose published order is another one
        assert classes.names == known.class_names
    assert bool(classes.cautions) == (key in {"emnist", "pcam"}), "labels without names are assumed to be in order"
    assert not any("Only" in note for note in data.notes)
    places = [data.find_reference(test, index) for index in (0, 3, 39)]
    shown = dict(data.read_images(test, [0, 3, 39]))
    first = layouts.encoded(key, 0 if test == "test" else 1000, labels[0], "JPEG" if places[0].row is None else
                            shown[0].format)  # fmt: skip
    assert next(read_encoded(places)) == first
    for (index, picture), data_of in zip(shown.items(), read_encoded(places), strict=True):
        assert picture.tobytes() == read_image(data_of, f"image {index}").tobytes()


def test_neutral_is_fifth_in_fer2013_and_the_converted_files_need_the_list(written, tmp_path):
    data = open_data(written["fer2013"])
    classes = name_classes(data, None, read_prompts("fer2013"))
    assert classes.names[4] == "neutral" and read_prompts("fer2013").class_names[4] == "sad"
    assert "lists first differ at label 4: the data set has 'neutral', FER2013 'sad'" in classes.origin
    converted = layouts.fer2013_converted(tmp_path)
    bare = open_data(converted)
    assert bare.class_names is None and bare.parts["test"].tolist() == data.parts["test"].tolist()
    with pytest.raises(TaskError, match="files of FER2013 differ in what they mean"):
        name_classes(bare, None, read_prompts("fer2013"))
    shutil.copy(written["fer2013"] / "classnames.txt", converted)
    assert name_classes(open_data(converted), None, read_prompts("fer2013")).names == classes.names
    assert open_data(converted / "default" / "test").parts.keys() == {"test"}


def test_one_configuration_is_taken_and_several_are_listed(written, tmp_path):
    home = tmp_path / "svhn"
    shutil.copytree(written["svhn"], home)
    assert len(open_data(home, configuration="cropped_digits").parts["test"]) == 40
    shutil.copytree(home / "cropped_digits", home / "full_numbers")
    with pytest.raises(TaskError, match=r"several configurations: cropped_digits, full_numbers\. Choose one with conf"):
        open_data(home)
    chosen = open_data(home, configuration="full_numbers")
    assert chosen.notes == ("The configuration 'full_numbers' was chosen; there is also cropped_digits.",)
    assert chosen.find_reference("test", 0).file.parent.name == "full_numbers"
    with pytest.raises(TaskError, match=r"no configuration 'croped_digits'. Did you mean 'cropped_digits'"):
        open_data(home, configuration="croped_digits")
    shutil.copytree(home / "full_numbers", home / "data")  # what is there without a configuration is not taken for it
    assert open_data(home, configuration="full_numbers").find_reference("test", 0).file.parent.name == "full_numbers"
    with pytest.raises(TaskError, match="fer2013 has no configurations"):
        open_data(written["fer2013"], configuration="default")


def test_a_column_called_label_wins_and_is_named(written):
    data = open_data(written["oxford_pets"])
    assert len(data.class_names) == 37 and data.notes == (
        "Column 'label' gives the labels; label_column can name label_cat_dog instead.",
    )
    assert open_data(written["oxford_pets"], label="label_cat_dog").class_names == ("cat", "dog")


def test_truth_values_are_0_and_1_and_said(written):
    data = open_data(written["pcam"])
    assert data.class_count == 2 and data.notes == ("Labels of column 'label' are false and true, taken as 0 and 1.",)
    assert name_classes(data, None, read_prompts("pcam")).names[1] == "lymph node containing metastatic tumor tissue"


def test_another_split_is_tested_on_when_asked(written, tmp_path):
    pcam = open_data(written["pcam"])
    assert [split_data_set(pcam, "pcam", 0, name).test[0] for name in (None, "valid", "validation", "test")] == [
        "test", "validation", "validation", "test",
    ]  # fmt: skip
    assert "part 'test' is not used" in split_data_set(pcam, "pcam", 0, "valid").rule
    odd = open_data(written["eurosat"], split="contrast")
    assert (
        set(odd.parts) == {"test", "train", "contrast"}
        and split_data_set(odd, "eurosat", 0, "contrast").test[0] == "contrast"
    )
    only = tmp_path / "data"
    only.mkdir()
    shutil.copy(next((written["eurosat"] / "data").glob("contrast-*")), only)
    assert [set(open_data(tmp_path, split=name).parts) for name in (None, "contrast")] == [{"whole"}, {"contrast"}]
    with pytest.raises(TaskError, match=r"no split 'contrast'; it has test, train"):
        split_data_set(open_data(written["eurosat"]), "eurosat", 0, "contrast")
    with pytest.raises(TaskError, match="Exemplars are drawn from the split 'training'"):
        split_data_set(pcam, "pcam", 0, "training")


def test_missing_files_of_a_split_are_said(written, tmp_path):
    home = tmp_path / "sun"
    shutil.copytree(written["sun397"], home)
    (home / "data" / "test-00003-of-00018.parquet").unlink()
    notes = open_data(home).notes
    assert notes[0] == "Only 17 of the 18 files of part 'test' are present; fetch the others for all its images."
    shutil.copytree(written["fer2013"], tmp_path / "fer")
    (tmp_path / "fer" / "test" / "2.tar").unlink()
    assert open_data(tmp_path / "fer").notes == (
        "Only 3 of the 4 tars in test/ are present; fetch the others for all its images.",
    )


def test_single_rows_are_read_without_their_neighbors(written, monkeypatch):
    data, groups = open_data(written["mnist"]), []
    inner = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches",
                        lambda self, **how: groups.extend(how["row_groups"]) or inner(self, **how))  # fmt: skip
    assert len(list(data.read_images("test", [1, 3, 33]))) == 3 and groups == [0, 4]
    groups.clear()
    monkeypatch.setattr("merging.images.data_sets.table_files.BATCH_ROWS", 2)
    backward = [data.find_reference("test", index) for index in (33, 3, 1)]
    expected = [layouts.encoded("mnist", n, n % 10, layouts.PNG) for n in (33, 3, 1)]
    assert list(read_encoded(backward)) == expected and groups == [4, 0, 0]


def test_a_damaged_cell_is_named_by_file_and_row(tmp_path):
    rows = layouts.table(layouts.Layout("a/b", "mnist"), "test", range(4))
    rows = rows.set_column(0, "image", [[{"bytes": b"x", "path": "a"}, {"bytes": None, "path": None}, None, None]])
    pq.write_table(rows, tmp_path / "test.parquet")
    data = open_data(tmp_path)
    problems = [str(picture) for _, picture in data.read_images("test", [0, 1, 2])]
    assert "test.parquet, row 0 is not an image" in problems[0] and "test.parquet, row 1 holds no image" in problems[1]
    assert "row 2 holds no image" in str(next(read_encoded([data.find_reference("test", 2)])))
    places = [data.find_reference("test", 0), data.find_reference("test", 1)]
    (tmp_path / "test.parquet").write_bytes(b"PAR1")
    assert all("test.parquet is damaged" in str(problem) for problem in read_encoded(places))
    (tmp_path / "test.parquet").unlink()
    assert all("test.parquet is damaged" in str(problem) for problem in read_encoded(places))


# --- caches ----------------------------------------------------------------------------------------------------------


def test_a_repository_in_the_hubs_cache_is_its_snapshot_of_main(written, tmp_path):
    other = "f" * 40
    home = layouts.hub_cache(written["eurosat"], "tanganke/eurosat", tmp_path)
    assert open_data(home).find_reference("test", 0).file.relative_to(home).parts[:2] == ("snapshots", layouts.COMMIT)
    assert (title(home), title(find_snapshot(home))) == ("tanganke/eurosat", f"tanganke/eurosat@{layouts.COMMIT[:12]}")
    assert all(isinstance(picture, Image.Image) for _, picture in open_data(home).read_images("test", range(40)))
    layouts.hub_cache(written["mnist"], "tanganke/eurosat", tmp_path, commit=other, main=None)
    assert find_snapshot(home).name == layouts.COMMIT, "refs/main says so"
    assert open_data(home / "snapshots" / other).class_names[3] == "3"
    (home / "refs" / "main").unlink()
    with pytest.raises(TaskError, match=f"tanganke/eurosat has several snapshots .*: {layouts.COMMIT}, {other}"):
        open_data(home)
    shutil.rmtree(home / "snapshots" / layouts.COMMIT)
    (home / "refs" / "main").write_text("../../../elsewhere")
    assert find_snapshot(home).name == other, "the only one"
    shutil.rmtree(home / "snapshots" / other)
    with pytest.raises(TaskError, match="tanganke/eurosat is in the cache without any snapshot"):
        open_data(home)


def test_links_to_files_elsewhere_are_refused(written, tmp_path):
    home = layouts.hub_cache(written["fer2013"], "a/fer", tmp_path)
    assert len(open_data(home).parts["test"]) == 40
    for source, name in (("mnist/mnist", "test-00000-of-00001.parquet"), ("fer/test", "0.tar")):
        folder = tmp_path / source / "linked"
        folder.mkdir(parents=True)
        key = source.partition("/")[0].replace("fer", "fer2013")
        (folder / name).symlink_to(next(written[key].rglob(name)))
        with pytest.raises(TaskError, match=f"{name} is a link that leads outside"):
            open_data(folder)


@pytest.mark.parametrize("shards", [1, 3])
def test_the_cache_of_the_datasets_library_is_read(shards, tmp_path):
    layout = layouts.Layout("ylecun/mnist", "mnist", form=layouts.PNG, shards=shards)
    home = layouts.datasets_cache(tmp_path, layout, "mnist")
    for path in (home, home / "mnist", home / "mnist" / "0.0.0" / layouts.COMMIT):
        data = open_data(path)
        assert set(data.parts) == TRAINED and data.class_names == tuple("0123456789") and data.notes == ()
    assert data.parts["test"].tolist() == layouts.labels(10, "test") and data.find_reference("test", 0) is None
    shown = dict(data.read_images("test", [2, 17, 39]))
    assert shown[17].tobytes() == read_image(layouts.encoded("mnist", 17, 7, layouts.PNG), "x").tobytes()
    layouts.datasets_cache(tmp_path, layout, "other")
    with pytest.raises(TaskError, match=r"ylecun/mnist has several configurations: mnist/0.0.0/.*, other/0.0.0/"):
        open_data(home)
    assert len(open_data(home, configuration="mnist").parts["test"]) == 40


def test_names_of_the_description_are_used_where_the_files_have_none(tmp_path):
    layout = layouts.Layout("ylecun/mnist", "mnist", form=layouts.PNG)
    folder = next(layouts.datasets_cache(tmp_path, layout).rglob("dataset_info.json")).parent
    for file in folder.glob("mnist-*.arrow"):
        split_name = file.stem.removeprefix("mnist-")
        layouts.arrow(file, layouts.table(layout, split_name, range(40)).replace_schema_metadata(None))
    assert open_data(folder).class_names == tuple("0123456789")
    info = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps(info | {"features": {"image": {"_type": "Image"}}}))
    assert open_data(folder).class_names is None
    (folder / "dataset_info.json").write_text("{")
    with pytest.raises(TaskError, match=r"dataset_info\.json"):
        open_data(folder)


def test_a_folder_of_another_kind_is_no_data_set(tmp_path):
    (tmp_path / "file.tar").write_bytes(b"")
    with pytest.raises(TaskError, match=r"file\.tar is damaged, or not an uncompressed tar: empty file"):
        open_data(tmp_path / "file.tar")
