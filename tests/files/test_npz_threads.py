"""Headers of NumPy's archives are parsed by one thread at a time, once for each state of the file."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.lib import format as npy

from merging.base.files.npz import Npz


def test_headers_are_parsed_by_one_thread_at_a_time(tmp_path, monkeypatch):
    np.savez(tmp_path / "images.npz", images=np.zeros(3))
    # two threads in CPython 3.11's parser may make it fail
    parse, at_once, most = npy.read_array_header_1_0, [], []

    def watched(stream):
        at_once.append(stream)
        most.append(len(at_once))
        time.sleep(0.01)  # long enough for another thread to come in
        at_once.remove(stream)
        return parse(stream)

    monkeypatch.setattr(npy, "read_array_header_1_0", watched)

    def shape(_):
        with Npz(tmp_path / "images.npz") as archive:
            return archive.infos["images"].shape

    with ThreadPoolExecutor(4) as pool:
        shapes = list(pool.map(shape, range(8)))
    assert shapes == [(3,)] * 8 and max(most) == 1


def test_an_archive_with_other_members_is_read_again_though_the_file_looks_the_same(tmp_path):
    path = tmp_path / "images.npz"
    np.savez(path, images=np.zeros((2, 3)))
    before = path.stat()
    with Npz(path) as archive:
        assert archive.infos["images"].shape == (2, 3)
    with path.open("r+b") as file:  # of the same size, in the same place on the disk, at the same time
        np.savez(file, images=np.ones((3, 2)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    with Npz(path) as archive:
        assert archive.infos["images"].shape == (3, 2) and archive.read("images").tolist() == [[1.0, 1.0]] * 3
