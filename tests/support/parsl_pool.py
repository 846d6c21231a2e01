"""Workers of Parsl, as a laboratory would open them for MERGESCOPE_WORKERS=module:function."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from merging.workers.fan_out import Workers


def open_pool() -> Workers:
    """Two workers on this machine."""
    from parsl.concurrent import ParslPoolExecutor
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.executors.high_throughput.errors import ManagerLost, WorkerLost
    from parsl.providers import LocalProvider

    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # of its commands
    paths = os.pathsep.join(path for path in sys.path if path)
    provider = LocalProvider(init_blocks=1, max_blocks=1, worker_init=f"export PYTHONPATH={paths} OMP_NUM_THREADS=1")
    local = HighThroughputExecutor(
        label="two", max_workers_per_node=2, cores_per_worker=0.5, provider=provider, address="127.0.0.1",
        loopback_address="127.0.0.1", heartbeat_period=2,
    )  # fmt: skip
    pool = ParslPoolExecutor(Config(executors=[local], run_dir=tempfile.mkdtemp(), retries=0))
    return Workers(pool, 2, lost=(WorkerLost, ManagerLost), called="Parsl", close=lambda each: each.shutdown(wait=True))
