"""Where the program runs: no home folder, one that cannot be written to, another user, little memory, a wrong clock."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import contents, fail_writing
from page_harness import words
from plain_recipes import plain_recipe

from app.reading import page_data
from merging.base import settings
from merging.base.errors import StoreError
from merging.base.files import atomic
from merging.base.files.processes import ProcessId, this_host, this_process
from merging.cli.main import OUT_OF_MEMORY_MESSAGE, main
from merging.engine import run as engine
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.digest_cache import DIGESTS
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage
from merging.tasks.context import Context
from viz.report.private_names import find_private_names

CHECKOUT = Path(__file__).resolve().parents[2]
NO_HOME = "There is no home folder to store runs in. Set MERGESCOPE_STORE"


@pytest.fixture
def recipe_file(tiny_benchmark: Benchmark, tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(plain_recipe(tiny_benchmark).to_yaml(), "utf-8")
    return path


@pytest.fixture
def homeless() -> Iterator[None]:
    """An account without a home folder, and no variable that says where the store is."""

    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MERGESCOPE_STORE", raising=False)
        patch.delenv("XDG_CACHE_HOME", raising=False)
        patch.setattr(Path, "home", none)
        yield


def test_without_a_home_folder(homeless: None, recipe_file: Path, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(StoreError, match=NO_HOME):
        settings.store_root()
    assert main(["run", str(recipe_file), "--no-evaluate"]) == 1
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith(NO_HOME)
    assert main(["run", str(recipe_file), "--no-evaluate", "--store", str(tmp_path / "elsewhere")]) == 0
    assert find_private_names().folders


@pytest.mark.full
def test_a_home_folder_that_cannot_be_written_to(
    open_app: Any, library: Path, recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("MERGESCOPE_STORE")
    with fail_writing(home, errno.EACCES):
        at = open_app("scores", library)
        assert not at.exception and not at.error and "nothing new can be stored" in words(at)
        assert main(["run", str(recipe_file), "--no-evaluate"]) == 1
    assert "cannot be written (Permission denied" in capsys.readouterr().err
    assert contents(home) == {}


@pytest.mark.full
def test_a_checkout_that_cannot_be_written_to(open_app: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "other", libraries=(settings.LIBRARY_FOLDER,))
    recipe = Recipe.build("ties", {}, [], "bundled:pretrained", {"flags": "bundled:flags", "digits": "bundled:digits"})
    with fail_writing(CHECKOUT, errno.EROFS) as disk:
        assert execute(recipe, store, evaluate=False, context=Context(device="cpu")).has_model
        at = open_app("scores", settings.BUNDLED_FOLDER)
    assert not at.exception and not at.error and disk.calls == []


@pytest.fixture
def shut() -> Iterator[Path]:
    """A folder that everybody can read and nobody but root can write to."""
    folder = Path(tempfile.mkdtemp(prefix="mergescope-"))
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    yield folder
    folder.rmdir()


def call(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that was run in the checkout, with what it has printed."""
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=CHECKOUT, **options)


RUN = """
import sys
from merging.cli.main import main
from merging.recipes.recipe import Recipe
chain = Recipe.build("weight_averaging", {}, [], "bundled:pretrained", {"flags": "bundled:flags"})
Recipe.load = classmethod(lambda cls, path: chain)  # another user cannot read files of the tests
sys.exit(main(["run", "recipe.yaml", "--no-evaluate", *sys.argv[1:]]))
"""


@pytest.mark.full
def test_another_user_without_home_and_store(shut: Path) -> None:
    """Really: a process of a user without rights, if one can be started."""
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    if other and not shutil.which(other[0]):
        pytest.skip("the tests run as root, and there is no setpriv")
    probe = call([*other, sys.executable, "-c", f"import merging; open({str(shut / 'x')!r}, 'w')"])
    if "PermissionError" not in probe.stderr:
        pytest.skip(f"no user without rights can start Python in this checkout: {probe.stderr[-200:]}")
    plain = {name: value for name, value in os.environ.items() if name not in {"XDG_CACHE_HOME", "MERGESCOPE_STORE"}}
    told = call([*other, sys.executable, "-c", RUN], env={**plain, "HOME": str(shut)})
    assert told.returncode == 1 and "cannot be written (Permission denied" in told.stderr, told.stderr


@pytest.mark.full
def test_a_small_disk(tmp_path: Path, recipe_file: Path) -> None:
    """Really: a file system of a few kilobytes, if one can be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    own = ["unshare", "--mount", "sh", "-c"]  # mounts of its own, which end with the process
    mount = f"mount -t tmpfs -o size={{}} tmpfs {place}"
    if not shutil.which(own[0]) or call([*own, mount.format("8k")]).returncode:
        pytest.skip("no file system can be mounted here")
    run = f"{sys.executable} -m merging run {recipe_file} --no-evaluate --store {place}/store"
    told = call([*own, f"{mount.format('32k')} && {run}; code=$?; find {place} -name '*tmp-*'; exit $code"])
    assert told.returncode == 1 and "Free some space" in told.stderr and "Traceback" not in told.stderr, told.stderr
    assert "tmp-" not in told.stdout


OUT = "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError(OUT)])
def test_out_of_memory(error: Exception, recipe_file: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def run(*given: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(engine, "run_recipe", run)
    assert main(["run", str(recipe_file), "--store", str(tmp_path / "store"), "--no-evaluate"]) == 1
    assert capsys.readouterr().err.strip().endswith(OUT_OF_MEMORY_MESSAGE)
    assert list((tmp_path / "store" / "runs").iterdir()) == []


@pytest.mark.parametrize("year", [0.0, 4e9])
def test_files_from_another_time(filled: Run, library: Path, year: float) -> None:
    """The clock was wrong when they were written: all is there, and what a dead writer has left goes."""
    root = filled.path.parents[1]
    DIGESTS.store(root, open_checkpoint(Benchmark.load(library).pretrained))
    left = atomic.make_temporary(root / "runs")
    gone = ProcessId(4194000, 1.0, this_host())
    dead = left.rename(left.with_name(left.name.replace(this_process().text, gone.text)))
    for path in (*root.rglob("*"), root):
        os.utime(path, (year, year))
    DIGESTS.clear()
    store = Store(root, libraries=())
    assert store.has_run(filled.id) and store.get_run(filled.id).scores is not None
    assert sweep_storage.list_sweeps(store) and points.point_results(store).list_locations()
    DIGESTS.load(root)
    assert DIGESTS.find(open_checkpoint(Benchmark.load(library).pretrained).file_fingerprint())
    assert not dead.exists()


def test_the_clock_goes_back_while_a_run_is_made(
    tmp_path: Path, tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = iter(range(100_000, 0, -1))
    monkeypatch.setattr(time, "time", lambda: 3600.0 * next(hours))
    seen: list[float | None] = []
    store = Store(tmp_path / "store", libraries=())
    run = execute(
        plain_recipe(tiny_benchmark), store, benchmark=tiny_benchmark,
        context=Context("cpu", lambda progress: seen.append(progress.seconds_left)),
    )  # fmt: skip
    assert all(left is None or left >= 0 for left in seen) and all(value >= 0 for value in run.seconds.values())
    assert Store(tmp_path / "store", libraries=()).has_run(run.id)


def test_the_tray_shows_no_negative_time(open_app: Any, library: Path, filled: Run, monkeypatch: Any) -> None:
    at = open_app("home", library)
    monkeypatch.setattr(time, "time", lambda: 1.0)
    at.run()
    assert not at.exception and "-" not in "".join(job.error for job in page_data.job_queue().list_jobs())
