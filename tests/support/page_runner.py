"""Runs the code blocks of a page of the documentation, in order: ``python page_runner.py PAGE`` in an empty folder.

Blocks in Python share their names, as in a notebook. Each block in bash is a shell of its own. A block of text that is
marked as output holds lines that the block before it prints, in this order.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)```(\w*)(?: +([^\n]*))?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A code block: the line of the page on which its text begins, its language, the words behind that, its text."""

    line: int
    language: str
    words: str
    text: str

    @property
    def runs(self) -> bool:
        """Whether it is a program that is run."""
        return self.language in ("python", "bash") and not self.words


def blocks(page: str) -> list[Block]:
    """The code blocks of a page."""
    return [
        Block(
            page.count("\n", 0, found.start()) + 2,
            found[2],
            found[3] or "",
            "".join(line.removeprefix(found[1]) for line in found[4].splitlines(keepends=True)),
        )
        for found in FENCE.finditer(page)
    ]


def run_page(path: Path) -> None:
    """Run the blocks of a page; SystemExit names the block that fails, or whose output is another one."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(path.read_text("utf-8")):
        if block.runs:
            printed = run_python(block, path, names) if block.language == "python" else run_bash(block, path)
        elif block.words == "output":
            rest = printed
            for line in block.text.splitlines():
                _, found, rest = rest.partition(line)
                if not found:
                    sys.exit(f"{path}:{block.line}: the block before does not print {line!r}, but:\n{printed}")


def run_python(block: Block, path: Path, names: dict[str, object]) -> str:
    """What a block in Python prints; a traceback names the line of the page."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), names)
    return printed.getvalue()


def run_bash(block: Block, path: Path) -> str:
    """What a block in bash prints on stdout."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{path}:{block.line}: ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
