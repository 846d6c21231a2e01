"""Policies for tables with a row per token if models differ in their tokens. Importing this does not load torch."""

# Merge the rows that all models have in common, or copy the pretrained model's table.
COMMON, PRETRAINED = "common", "pretrained"
VOCABULARIES = (COMMON, PRETRAINED)
