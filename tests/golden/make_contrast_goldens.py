#!/usr/bin/python3
"""Makes tests/data/contrast.json: what contrastive search finds over the float64 reference of the model zoo.

usage: make_contrast_goldens.py REFERENCE    (the folder with zoo_forward.py; needs PyTorch)

Each token is chosen by computing all of the text again with each of the k candidates behind it. Of each folder of
tests/data/zoo two searches are kept. Prompts are tried until no decision is nearer than GAP, so that rounding changes none.
"""
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHAPES = [{"penalty_alpha": 0.6, "top_k": 4}, {"penalty_alpha": 0.25, "top_k": 7}]
N_TOKENS, GAP = 14, 1e-3


def compute(model, tokens):
    """(the logits behind the last token, all hidden states after the last norm)."""
    kept, plain = {}, model.norm

    def norm(name, x):
        kept[name] = plain(name, x)
        return kept[name]

    model.norm = norm
    logits = model.forward(tokens)[-1]
    model.norm = plain
    return logits, kept["model.norm"]


def search(model, prompt, alpha, k):
    """(tokens, the smallest gap between what was chosen and what was not)."""
    tokens, gap = list(prompt), float("inf")
    logits, context = compute(model, tokens)
    for _ in range(N_TOKENS):
        values, ids = logits.topk(k + 1)
        gap = min(gap, float(values[k - 1] - values[k]))
        found, unit = [], context / context.norm(dim=1, keepdim=True)
        for token in ids[:k].tolist():
            after, states = compute(model, [*tokens, token])
            likeness = float((unit @ (states[-1] / states[-1].norm())).max())
            found.append(((1 - alpha) * float(logits.softmax(0)[token]) - alpha * likeness, token, after, states))
        found.sort(key=lambda one: -one[0])
        gap = min(gap, found[0][0] - found[1][0])
        _, token, logits, context = found[0]
        tokens.append(token)
    return tokens[len(prompt):], gap


def main():
    sys.path.insert(0, sys.argv[1])
    import zoo_forward
    zoo = os.path.join(ROOT, "tests/data/zoo")
    cases = {}
    for name in sorted(os.listdir(zoo)):
        folder = os.path.join(zoo, name)
        if not os.path.exists(os.path.join(folder, "model.safetensors")):
            continue
        model = zoo_forward.Model(folder)
        n_vocab = model.cfg["vocab_size"]
        cases[name] = []
        for shape in SHAPES:
            for seed in range(40):
                prompt = [(7 + 31 * seed + 13 * i * i) % n_vocab for i in range(3 + seed % 20)]
                try:
                    output, gap = search(model, prompt, shape["penalty_alpha"], shape["top_k"])
                except (KeyError, AttributeError, ValueError) as error:
                    print(f"{name}: {error!r}")
                    break
                if gap >= GAP:
                    cases[name].append({"prompt": prompt, **shape, "output": output})
                    break
        print(name, [len(case["prompt"]) for case in cases[name]], flush=True)
    with open(os.path.join(ROOT, "tests/data/contrast.json"), "w", encoding="utf-8") as f:
        json.dump({name: found for name, found in cases.items() if found}, f, separators=(",", ":"))
        f.write("\n")


main()
