"""Perplexity of text files for a language model, in windows that do not overlap.

MERGESCOPE_EVALUATOR="python docs/evaluators/perplexity.py book.txt news.txt".
"""

import json
import math
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

WINDOW = 512  # tokens

*files, folder = map(Path, sys.argv[1:])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder).eval()
window = min(WINDOW, getattr(model.config, "max_position_embeddings", WINDOW))
for file in files:
    tokens = tokenizer(file.read_text(encoding="utf-8"), return_tensors="pt")["input_ids"]
    total, count = 0.0, 0
    for part in tokens.split(window, dim=1):
        if part.shape[1] > 1:  # the first token of a window is not predicted
            with torch.inference_mode():
                total += float(model(input_ids=part, labels=part).loss) * (part.shape[1] - 1)
            count += part.shape[1] - 1
    if count == 0:
        sys.exit(f"{file.name} has too few tokens.")
    score = {"task": file.stem, "metric": "perplexity", "value": math.exp(total / count), "better": "lower"}
    print(json.dumps(score), flush=True)
