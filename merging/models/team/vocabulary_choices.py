"""What becomes of tables with a row per token, where models have more or fewer. Importing this loads no torch."""

COMMON, PRETRAINED = "common", "pretrained"
VOCABULARIES = (COMMON, PRETRAINED)
