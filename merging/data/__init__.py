"""Data sets of one's own: read from where they are, split, and written as a benchmark folder.

``datasets.open_data(path)`` tells what a path holds: kind, parts with labels, class names. ``description.Description``
says which tasks, experts and heads belong together, from YAML (``load``) or plain data (``of``). ``planning.plan``
opens and checks everything without writing; ``build.make`` writes the folder that ``merging.tasks.Benchmark`` reads:

    from merging.data.build import make
    from merging.data.description import Description

    benchmark = make(Description.load(Path("tasks.yaml")), Path("mine"), progress=print)

All of them raise ``TaskError`` or ``CheckpointError`` with a sentence for the user. ``build.altered(folder)`` compares
a folder with its manifest, and ``cached.CachedFeatures`` scores features that were computed before.
"""
