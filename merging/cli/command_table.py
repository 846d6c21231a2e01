"""The commands by name. Each is imported only when it is called, so that a call loads no modules of other commands."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

COMMANDS: Mapping[str, tuple[str, str]] = {
    "app": ("merging.cli.app_commands:app", "Open the app on this machine."),
    "serve": ("merging.cli.app_commands:serve", "Serve the app to others; the environment has all settings."),
    "methods": (
        "merging.cli.commands.methods:methods",
        "List every edit, merge and adapt with its parameters, or check a method of your own.",
    ),
    "run": ("merging.cli.commands.run:run", "Run recipe files into the store, such as those from the app."),
    "merge": ("merging.cli.commands.merge:merge", "Merge checkpoints and export the model."),
    "export": ("merging.cli.commands.export:export", "Export the model of a stored run as a folder."),
    "pack": (
        "merging.cli.pack_command:pack",
        "Write stored runs with their scores, tables, measurements and sweeps to one file, without weights and paths.",
    ),
    "convert": (
        "merging.cli.commands.convert:convert",
        "Write a checkpoint of any format for Transformers or open_clip.",
    ),
    "inspect": ("merging.cli.commands.inspect:inspect", "Describe a checkpoint by its content."),
    "measure": (
        "merging.cli.commands.measure:measure",
        "Compute measurements of stored runs, such as feature drift.",
    ),
    "sweep": (
        "merging.cli.commands.sweep:sweep",
        "Evaluate recipes at many values; a stopped sweep can be continued.",
    ),
    "tune": (
        "merging.cli.tune_command:tune",
        "Search for the best values of a chain; report the best on other images, beside random search and a grid.",
    ),
    "workers": (
        "merging.cli.commands.workers:workers",
        "List the workers, whether they fit this program, and the running jobs of the store.",
    ),
    "worker": ("merging.cli.commands.workers:worker", "Compute for a scheduler, until Ctrl-C."),
    "scheduler": (
        "merging.cli.commands.workers:scheduler",
        "Distribute units of work to workers, until Ctrl-C.",
    ),
    "preview": (
        "merging.cli.commands.preview:preview",
        "Estimate the scores of a recipe on a sample, compared with a reference.",
    ),
    "image": ("merging.cli.commands.image:image", "Follow one image through a run, block by block."),
    "evaluate": ("merging.cli.commands.evaluate:evaluate", "Measure the accuracy of a checkpoint on the benchmark."),
    "scores": (
        "merging.cli.commands.scores:scores",
        "List the imported scores of a run, or import them from a file or a program.",
    ),
    "fit": ("merging.cli.commands.fit:fit", "Check whether checkpoints can be merged."),
    "digest": (
        "merging.cli.commands.fit:digest",
        "Compute the digests of checkpoints' tensors, and store them for the app.",
    ),
    "benchmark": (
        "merging.cli.commands.benchmark:benchmark",
        "Make a benchmark folder from your own data, or check one.",
    ),
    "lessons": ("merging.cli.commands.lessons:lessons", "List the lessons, check them, or start a new one."),
    "published": (
        "merging.cli.commands.published:published",
        "List the papers' experiments on published models, or run one.",
    ),
}


class CommandTable(click.Group):
    """A group whose commands are imported when they are called, and listed without being imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every name with its sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])
