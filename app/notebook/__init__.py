"""What a notebook has beyond the library: stored runs, the charts of every page, and merges that draw themselves."""

# Public names, which ``mergescope`` hands on when they are first used -> the modules that define them.
DEFINED_IN = {
    "compare": "app.notebook.run_list",
    "merge": "app.notebook.merge_call",
    "run": "app.notebook.run_list",
    "runs": "app.notebook.run_list",
    "view": "app.notebook.page_view",
}
