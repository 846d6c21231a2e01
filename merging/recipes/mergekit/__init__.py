"""Recipes of mergekit: configs of whole models, read as recipes and written from them."""
