#!/usr/bin/python3
"""Makes tests/data/beams.json: what a plain beam search finds over the float64 reference of the model zoo.

usage: make_beam_goldens.py REFERENCE    (the folder with zoo_forward.py; needs PyTorch)

The search keeps every beam as a list of tokens and computes all of it again for every token. Of each folder of
tests/data/zoo two searches are kept: without an end, and with a stop token that ends some beams. Prompts are tried until
no decision is nearer than GAP, so that rounding changes none.
"""
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WIDTH, N_TOKENS, GAP = 4, 10, 1e-3


def score(total, n, penalty):
    return total / n ** penalty


def search(model, prompt, stops, penalty):
    """([(tokens, score)], the smallest gap between what was kept and what was not)."""
    live, done, gap = [((), 0.0)], [], float("inf")
    for _ in range(N_TOKENS):
        found = []
        for tokens, total in live:
            row = model.forward([*prompt, *tokens])[-1].log_softmax(0)
            values, ids = row.topk(2 * WIDTH + 1 + len(stops))
            gap = min(gap, float(values[2 * WIDTH - 1] - values[2 * WIDTH])) if stops else gap
            for rank, (value, token) in enumerate(zip(values.tolist(), ids.tolist())):
                if token not in stops:
                    found.append(((*tokens, token), total + value))
                elif rank < 2 * WIDTH:
                    done.append(((*tokens, token), score(total + value, len(prompt) + len(tokens), penalty)))
        found.sort(key=lambda beam: -beam[1])
        gap = min(gap, *(a[1] - b[1] for a, b in zip(found[:WIDTH], found[1:])))
        live = found[:WIDTH]
    done += [(tokens, score(total, len(prompt) + len(tokens), penalty)) for tokens, total in live]
    done.sort(key=lambda beam: -beam[1])
    gap = min(gap, *(a[1] - b[1] for a, b in zip(done[:WIDTH], done[1:])))
    return done[:WIDTH], gap


def case(model, prompt, stops, penalty):
    best, gap = search(model, prompt, stops, penalty)
    if gap < GAP:
        return None
    return {"prompt": prompt, "stop_token_ids": stops, "length_penalty": penalty,
            "outputs": [list(tokens) for tokens, _ in best]}


def with_stop(model, prompt):
    """A search that some beams of leave early, by a token that the one without an end chose."""
    best, _ = search(model, prompt, [], 1.0)
    for token in dict.fromkeys(t for tokens, _ in best for t in tokens[2:7]):
        found = case(model, prompt, [token], 0.5)
        ended = sum(tokens[-1] == token for tokens in found["outputs"]) if found else 0
        if 0 < ended < WIDTH:
            return found
    return None


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
        found = {}
        for seed in range(60):
            prompt = [(7 + 31 * seed + 13 * i * i) % n_vocab for i in range(3 + seed % 20)]
            try:
                found["plain"] = found.get("plain") or case(model, prompt, [], 1.0)
                found["stop"] = found.get("stop") or with_stop(model, prompt)
            except KeyError:
                break  # an architecture that this file of the reference does not have
            if all(found.values()):
                break
        cases[name] = {kind: one for kind, one in found.items() if one}
        print(name, list(cases[name]), flush=True)
    with open(os.path.join(ROOT, "tests/data/beams.json"), "w", encoding="utf-8") as f:
        json.dump(cases, f, indent=None, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
