"""Where every command's function is, as "module:function": only the one that is called is imported."""

from __future__ import annotations

COMMANDS = {
    "methods": "merging.commands:list_methods",
    "run": "merging.merge_command:run",
    "merge": "merging.merge_command:merge",
    "export": "merging.merge_command:export_run",
    "convert": "merging.convert_command:convert",
    "inspect": "merging.convert_command:show",
    "measure": "merging.commands:measure_run",
    "sweep": "merging.sweep_command:sweep",
    "evaluate": "merging.commands:evaluate_checkpoint",
    "fit": "merging.shelf.commands:check_fit",
    "digest": "merging.shelf.commands:digest",
    "benchmark": "merging.data.command:benchmark_action",
}
