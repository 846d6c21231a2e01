"""Data sets of one's own: read from where they are, split, and written as a benchmark folder.

``datasets.open_data`` recognizes what a path holds; ``description.Description`` says which tasks, experts and heads
belong together; ``build.make`` writes the folder that ``merging.tasks.Benchmark`` reads.
"""
