"""Choices for tables with a row per token if models differ in their tokens. Importing this loads no torch."""

COMMON, PRETRAINED = "common", "pretrained"
VOCABULARIES = (COMMON, PRETRAINED)
