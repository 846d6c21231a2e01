"""Accuracy of each task's classifier: the merged network with the head that the task's expert keeps.

MERGESCOPE_EVALUATOR="python docs/evaluators/classifiers.py my_data". The folder my_data has a file <expert>.jsonl for
each task, with lines such as {"text": "a fine film", "label": 1}; a pair of texts has "pair", too.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer


def classifier(folder: Path, head: Path) -> torch.nn.Module:
    """The merged network under the expert's configuration, with the expert's head."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, config=AutoConfig.from_pretrained(head))
    if head == folder:
        return model.eval()
    unknown = model.load_state_dict(load_file(head / "head.safetensors"), strict=False).unexpected_keys
    if unknown:
        sys.exit(f"{head.name}: the classifier has no tensor {unknown[0]}.")
    return model.eval()


def main(data: Path, folder: Path) -> None:
    """Print a line for each task that has data and a head."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    heads = folder / "heads"  # an expert by itself has its head among its weights, in a folder called like it
    for head in sorted(heads.iterdir()) if heads.is_dir() else [folder]:
        file = data / f"{head.name}.jsonl"
        if not file.is_file():
            continue
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        model, correct = classifier(folder, head), 0
        for row in rows:
            words = tokenizer(row["text"], row.get("pair"), return_tensors="pt", truncation=True)
            with torch.inference_mode():
                correct += int(model(**words).logits.argmax()) == row["label"]
        score = {"task": head.name, "metric": "accuracy", "value": correct / len(rows), "n": len(rows)}
        print(json.dumps(score | {"better": "higher"}), flush=True)


main(Path(sys.argv[1]), Path(sys.argv[2]))
