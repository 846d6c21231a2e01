"""Where every command's function is, as "module:function": only the one that is called is imported."""

from __future__ import annotations

COMMANDS = {
    "methods": "merging.cli.commands.methods:list_methods",
    "run": "merging.cli.commands.merge:run",
    "merge": "merging.cli.commands.merge:merge",
    "export": "merging.cli.commands.merge:export_run",
    "convert": "merging.cli.commands.convert:convert",
    "inspect": "merging.cli.commands.convert:show",
    "measure": "merging.cli.commands.measure:measure_run",
    "sweep": "merging.cli.commands.sweep:sweep",
    "evaluate": "merging.cli.commands.evaluate:evaluate_checkpoint",
    "fit": "merging.cli.commands.fit:check_fit",
    "digest": "merging.cli.commands.fit:digest",
    "benchmark": "merging.cli.commands.benchmark:benchmark_action",
}
