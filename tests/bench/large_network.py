"""Memory, seconds and bytes of elementwise chains on networks of Llama-3-8B's widths, which are written here.

    PYTHONPATH=.:tests/support python tests/bench/large_network.py [--blocks 1 2] [--experts 2] [--folder DIR]

Each network is cut to so many blocks and written in bfloat16, divided into files with an index; its numbers repeat
after a while, so that they are written quickly. Every chain merges in a process of its own, which writes the result and
reports its largest anonymous memory (RssAnon), that of torch and pandas included, the seconds of the clock, and the
bytes of tensors that the chain reads. Chains must stay under 1 GiB, however many blocks there are. Seconds of the whole
network of 32 blocks are extrapolated from the bytes that it has, and are said to be. ``--look`` measures ``inspect``
and ``fit``, too. The files are deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import tempfile
from pathlib import Path

import torch
from measured_memory import run_measured

from merging.base.devices import describe_machine
from merging.base.files.disk import free_bytes
from merging.base.text import size_text

HIDDEN, MLP, VOCABULARY, HEADS_OF_KEYS, BLOCKS = 4096, 14336, 128_256, 1024, 32
MOST = 2**30  # bytes of anonymous memory that a chain may take
PERIOD = 1 << 22  # numbers after which the drawn ones repeat
OF_BLOCK = {
    "input_layernorm": (HIDDEN,),
    "mlp.down_proj": (HIDDEN, MLP),
    "mlp.gate_proj": (MLP, HIDDEN),
    "mlp.up_proj": (MLP, HIDDEN),
    "post_attention_layernorm": (HIDDEN,),
    "self_attn.k_proj": (HEADS_OF_KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.v_proj": (HEADS_OF_KEYS, HIDDEN),
}
CHAINS = (["weight_averaging"], ["task_arithmetic"], ["lwptv", "task_arithmetic"], ["ties"])
OPENED = """
from merging.models.formats.model_sources import open_checkpoint

files = sys.argv[2:-1]
seconds = time.monotonic()
"""
MERGE = (
    OPENED
    + """
from merging.engine.run import run_recipe
from merging.engine.chain_work import chain_work
from merging.models.formats.safetensors import SafetensorsWriter
from merging.recipes.recipe import Recipe
from merging.tasks.context import Context

pretrained, *experts = (open_checkpoint(file) for file in files)
named = {f"expert {k}": expert for k, expert in enumerate(experts)}
chain = json.loads(sys.argv[1])
recipe = Recipe.build(chain[-1], edits=chain[:-1])
with peak() as most, SafetensorsWriter(Path(sys.argv[-1]), pretrained.infos) as writer:
    run_recipe(recipe, pretrained, named, context=Context("cpu"), make_sink=lambda _: writer)
print(json.dumps([max(most), time.monotonic() - seconds, chain_work(recipe, pretrained, named).reads]))
"""
)
FIT = (
    OPENED
    + """
from merging.models.inspection.fit_check import check_fit

with peak() as most:
    report = check_fit(
        files[0], dict(enumerate(files[1:])),
        sample="sample" in sys.argv[1], values="values" in sys.argv[1])
assert report.ok, report
print(json.dumps([max(most), time.monotonic() - seconds, 0]))
"""
)
INSPECT = (
    OPENED
    + """
from merging.models.inspection.checkpoint_facts import inspect

with peak() as most:
    inspect(open_checkpoint(files[0]), digest="digest" in sys.argv[1])
print(json.dumps([max(most), time.monotonic() - seconds, 0]))
"""
)
LOOKS = {
    "inspect --no-digest": (INSPECT, ""),
    "inspect": (INSPECT, "digest"),
    "fit of a sample": (FIT, "sample"),
    "fit of all numbers": (FIT, "values"),
}


def parts(blocks: int) -> list[dict[str, tuple[int, ...]]]:
    """{tensor: shape} of every file: the token table, each block, and what stands after them."""
    table = (VOCABULARY, HIDDEN)
    names = [{f"model.layers.{k}.{name}.weight": shape for name, shape in OF_BLOCK.items()} for k in range(blocks)]
    return [{"model.embed_tokens.weight": table}, *names, {"lm_head.weight": table, "model.norm.weight": (HIDDEN,)}]


def nbytes(blocks: int) -> int:
    """Bytes of the tensors of a network."""
    return 2 * sum(math.prod(shape) for part in parts(blocks) for shape in part.values())


def write(folder: Path, blocks: int, drawn: torch.Tensor) -> None:
    """Write a network whose every tensor begins elsewhere in these numbers of type bfloat16, (``PERIOD``,)."""
    folder.mkdir(parents=True)
    twice, where, files = memoryview(drawn.repeat(2).view(torch.uint8).numpy()), dict[str, str](), parts(blocks)
    for number, part in enumerate(files, 1):
        name, header, end = f"model-{number:05}-of-{len(files):05}.safetensors", dict[str, object](), 0
        for tensor, shape in part.items():
            size = 2 * math.prod(shape)
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
            where[tensor], end = name, end + size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor, shape in part.items():
                left, start = 2 * math.prod(shape), 2 * (sum(tensor.encode()) * 997 % PERIOD)
                while left:
                    left -= file.write(twice[start : start + min(left, 2 * PERIOD)])
    index = {"metadata": {"total_size": nbytes(blocks)}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")


def write_team(folder: Path, blocks: int, experts: int) -> list[Path]:
    """The folders of a pretrained network and of its experts."""
    draw = torch.Generator().manual_seed(0)
    base = 0.02 * torch.randn(PERIOD, generator=draw)
    paths = [folder / "pretrained", *(folder / f"expert_{number}" for number in range(experts))]
    for number, path in enumerate(paths):
        change = 2e-3 * torch.randn(PERIOD, generator=draw) if number else 0.0
        write(path, blocks, (base + change).bfloat16())
    return paths


def main() -> None:
    """Print a line for every chain and every number of blocks; fails where a chain takes too much memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--experts", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="a disk with enough room; default: that of temporary files")
    parser.add_argument("--look", action="store_true")
    asked = parser.parse_args()
    print(f"{describe_machine()}; {asked.experts} experts; {BLOCKS} blocks are {size_text(nbytes(BLOCKS))} a network")
    large = []
    for blocks in asked.blocks:
        with tempfile.TemporaryDirectory(dir=asked.folder) as name:
            folder, needed = Path(name), (asked.experts + 2) * nbytes(blocks)
            if needed > (free := free_bytes(folder)):
                parser.error(f"{blocks} blocks need {size_text(needed)} on the disk; {size_text(free)} are free.")
            paths, factor = write_team(folder, blocks, asked.experts), nbytes(BLOCKS) / nbytes(blocks)
            print(f"{blocks} blocks, {size_text(nbytes(blocks))} a network", flush=True)
            for chain in CHAINS:
                anonymous, seconds, reads = run_measured(MERGE, json.dumps(chain), *paths, folder / "merged")
                large += [chain] * (anonymous >= MOST)
                print(
                    f"  {' -> '.join(chain):38} {size_text(anonymous):>8} anonymous, {seconds:5.0f} s, "
                    f"{size_text(reads):>8} read; extrapolated to {BLOCKS} blocks: {factor * seconds / 60:3.0f} min, "
                    f"{size_text(round(factor * reads))} read",
                    flush=True,
                )
            for what, (child, how) in LOOKS.items() if asked.look else ():
                anonymous, seconds, _ = run_measured(child, how, *paths, folder / "merged")
                print(f"  {what:38} {size_text(anonymous):>8} anonymous, {seconds:5.1f} s", flush=True)
    if large:
        raise SystemExit(f"More than {size_text(MOST)} of anonymous memory: {large}")


if __name__ == "__main__":
    main()
