"""Hooks of mkdocs, which add pages to the site that are not files in docs/.

Some come from other folders; others are generated from data: the methods, the command line, the app's addresses and
words. Links to files that the site lacks become plain text, and code blocks lose the words that only tests read.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import yaml
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES_OUTSIDE_DOCS = {
    "CONTRIBUTING.md": "contributing.md",
    "CITATION.md": "citation.md",
    "CHANGELOG.md": "changelog.md",
    "DECISIONS.md": "decisions.md",
    "sample_data/README.md": "bundled_benchmark.md",
}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
WORDS = re.compile(r"^(\s*```\w+) .+$", re.MULTILINE)  # behind the language of a block, for the tests


def on_files(files: Files, config: Any) -> Files:
    """The files of the site, with pages from outside docs/ and generated ones."""
    sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []
    for source, name in PAGES_OUTSIDE_DOCS.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    for name, write in WRITTEN.items():
        files.append(File.generated(config, name, content="\n".join(write()) + "\n"))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The text of a page as the site shows it."""
    name = page.file.src_uri
    source = {page: source for source, page in PAGES_OUTSIDE_DOCS.items()}.get(name, f"docs/{name}")

    def point(link: re.Match[str]) -> str:
        text, target, anchor = link.groups(default="")
        if ":" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = PAGES_OUTSIDE_DOCS.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
        return f"[{text}]({posixpath.relpath(inside, posixpath.dirname(name) or '.')}{anchor})" if inside else text

    return WORDS.sub(r"\1", LINK.sub(point, markdown))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The page as a browser gets it: all that it loads is part of the site."""
    return output.replace("https://unpkg.com/iframe-worker/shim", "search.js")


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """A page of the theme, likewise."""
    return on_post_page(output, None, config)


def write_methods() -> Iterator[str]:
    """The page of all methods: what they do, their formulas and parameters, and where they come from."""
    from merging.methods import registry

    yield "# Methods\n"
    yield "An edit changes task vectors, a merge makes one model of them, an adapt adds modules for tasks.\n"
    role = ""
    for method in registry.list_methods():
        if method.role != role:
            role = method.role
            yield f"\n## {role.capitalize()}s\n"
        needs = f" It needs {method.needs}." if method.needs != "nothing" else ""
        yield f"\n### {method.title}\n\n`{method.key}`. {method.summary}{needs}\n"
        yield f"<div class=formula>{formula(method.formula)}</div>\n"
        if bounds := method.params.bounds():
            yield "| parameter | values | default | |\n|---|---|---|---|"
        for key, bound in bounds.items():
            yield f"| `{key}` | {bound.describe()} | `{bound.to_text(bound.default)}` | {cell(bound.help)} |"
        yield f"\n{method.variant}\n\n*{method.cite.text()}*\n"


def write_command_line() -> Iterator[str]:
    """The page of all commands: the text of ``--help`` of each."""
    from merging.cli.main import CODES_HELP, PROGRAM, program

    yield f"# Command line\n\nEvery command takes `--json` and shows progress on stderr. {CODES_HELP}"
    yield "[Own checkpoints](own_checkpoints.md#completion) shows how a shell completes commands.\n"
    yield from command_help(program, click.Context(program, info_name=PROGRAM, max_content_width=96), 1)


def command_help(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """The help of a command and of those below it, with a heading each."""
    if level > 1:
        yield f"{'#' * level} {context.command_path.split(' ', 1)[1]}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        if below := command.get_command(context, name):
            yield from command_help(below, click.Context(below, context, name, max_content_width=96), level + 1)


def write_addresses() -> Iterator[str]:
    """The page of the keys of the app's addresses."""
    from app.session.address import ADDRESS

    yield "# Addresses of the app\n"
    yield "Every view has an address, which *Link* on a page copies. These are its keys. Those"
    yield "of controls have the control's value; a control at its default is left out.\n"
    yield "| key | pages | meaning |\n|---|---|---|"
    yield from (f"| `{entry.key}` | {entry.pages} | {cell(entry.meaning)} |" for entry in ADDRESS)


def write_glossary() -> Iterator[str]:
    """The page of the words that the app explains."""
    yield "# Words\n\nThe app explains these where a page first uses them, and under *Methods*.\n"
    yield "| word | meaning | formula |\n|---|---|---|"
    for entry in yaml.safe_load((ROOT / "app/glossary.yaml").read_text("utf-8"))["words"]:
        yield f"| {entry['word']} | {cell(entry['sentence'])} | {formula(entry['formula'])} |"


def formula(latex: str) -> str:
    """A formula as MathML that stands in any text, without its source, in which Markdown would find marks."""
    from app.snapshot.formulas import mathml

    return re.sub(r"<annotation.*?</annotation>", "", mathml(latex)).replace("|", "&#124;")


def cell(text: str) -> str:
    """Text that stands in one cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


WRITTEN: dict[str, Callable[[], Iterator[str]]] = {
    "methods.md": write_methods,
    "command_line.md": write_command_line,
    "addresses.md": write_addresses,
    "glossary.md": write_glossary,
}
