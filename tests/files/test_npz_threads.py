"""Headers of NumPy's archives are parsed by one thread at a time: CPython 3.11's parser may fail otherwise."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.lib import format as npy

from merging.base.files.npz import Npz


def test_headers_are_parsed_by_one_thread_at_a_time(tmp_path, monkeypatch):
    np.savez(tmp_path / "images.npz", images=np.zeros(3))
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
