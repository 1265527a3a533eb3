#!/usr/bin/python3
"""Makes tests/data/mtp: a model whose multi-token prediction layer guesses about half of what comes, and its goldens.

usage: make_mtp_goldens.py REFERENCE [ZOO2]    (the folder with zoo_forward.py and st.py; needs PyTorch)

The model is tests/data/zoo/deepseek_v3 with what its layers add made smaller, so that the next token follows mostly from
the last one. Its prediction layer gets an eh_proj that is fitted: from a token's embedding and the state before it to the
state that the model has there. It shares the model's embedding and head. Kept are

- goldens.safetensors: of this model and of zoo/deepseek_v3, whose prediction layer is random and has tables of its own,
  the states of a prompt, the layer's logits, and the logits where it goes on from its own states;
- guesses.json: how many guesses are made and come true with 1 to 4 of them in a step, in the form of
  tests/data/speculative. Prompts are taken whose decisions are no nearer than GAP, so that rounding changes none.

With ZOO2, the second part of the zoo, it only makes glm4_moe.safetensors: the same goldens of a few rows of its glm4_moe.

All of it is float64: token i + 1 and state i (after the final norm) go in at position i, and token i + 2 comes out. From
its own states, after its final norm, the layer guesses on.
"""
import json
import os
import shutil
import sys

import numpy as np
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ZOO = os.path.join(ROOT, "tests/data/zoo/deepseek_v3")
OUT = os.path.join(ROOT, "tests/data/mtp")
N_PROMPTS, N_TOKENS, K_MAX, GAP = 12, 48, 4, 1e-3
SHRINK, SHRINK_MTP = 0.06, 0.12
N_GOLDEN, N_CHAIN = 33, 4

sys.path.insert(0, sys.argv[1])
import st
import zoo_forward


class Predictor:
    """Of any model of the reference."""

    def setup(self):
        self.mtp = self.cfg["num_hidden_layers"]
        self.prefix = f"model.layers.{self.mtp}."
        self.embedding = self.w["model.embed_tokens.weight"]
        self.mtp_embedding = self.w.get(self.prefix + "embed_tokens.weight", self.embedding)
        self.mtp_head = self.w.get(self.prefix + "shared_head.head.weight", self.w["lm_head.weight"])
        return self

    def raw_states(self, ids):
        self.routing, self.attn_entropy, self.group_margin = {}, [], []
        x = self.embedding[torch.as_tensor(ids)]
        for i in range(self.mtp):
            x = self.layer(i, x)
        return x

    def states(self, ids):
        return self.norm("model.norm", self.raw_states(ids))

    def joined(self, tokens, states):
        return torch.cat([self.norm(self.prefix + "enorm", self.mtp_embedding[torch.as_tensor(tokens)]),
                          self.norm(self.prefix + "hnorm", states)], -1)

    def predict(self, tokens, states):
        """The layer's own states; rows are positions 0, 1, ..."""
        x = self.layer(self.mtp, self.lin(self.prefix + "eh_proj", self.joined(tokens, states)))
        return self.norm(self.prefix + "shared_head.norm", x)

    def chain(self, ids, states, k):
        """(k guesses, their logits, the smallest gap); states are those of all but the last token."""
        tokens, guesses, rows, gap = list(ids[1:]), [], [], float("inf")
        for _ in range(k):
            own = self.predict(tokens, states)
            row = own[-1] @ self.mtp_head.T
            best = row.topk(2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            rows.append(row)
            guesses.append(int(best.indices[0]))
            tokens.append(guesses[-1])
            states = torch.cat([states, own[-1:]])
        return guesses, torch.stack(rows), gap


class Model(Predictor, zoo_forward.Model):
    pass


def rounded(tensor):
    return tensor.to(torch.bfloat16)


def make_weights():
    weights = st.load(os.path.join(ZOO, "model.safetensors"))
    prefix = "model.layers.3."
    for name in weights:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weights[name] = rounded(weights[name] * (SHRINK_MTP if name.startswith(prefix) else SHRINK))
    for name in ("embed_tokens.weight", "shared_head.head.weight"):
        del weights[prefix + name]
    weights[prefix + "shared_head.norm.weight"] = weights["model.norm.weight"].clone()
    model = Model(ZOO, weights).setup()
    rng, inputs, outputs = np.random.default_rng(5), [], []
    for _ in range(60):
        ids = rng.integers(0, 507, 64).tolist()
        raw = model.raw_states(ids)
        inputs.append(model.joined(ids[1:], model.norm("model.norm", raw)[:-1]))
        outputs.append(raw[1:])
    x, y = torch.cat(inputs), torch.cat(outputs)
    ridge = 0.01 * torch.eye(x.shape[1], dtype=torch.float64)
    weights[prefix + "eh_proj.weight"] = rounded(torch.linalg.solve(x.T @ x + ridge, x.T @ y).T)
    return weights


def greedy(model, prompt, n):
    """(the text, the smallest gap)"""
    ids, gap = list(prompt), float("inf")
    for _ in range(n):
        best = (model.states(ids)[-1] @ model.w["lm_head.weight"].T).topk(2)
        gap = min(gap, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids, gap


def count(text, n_prompt, chains, k):
    """Steps as the engine makes them: the first one computes the prompt, before which no states are known."""
    table, n = {"target_steps": 1, "proposed": 0, "accepted": 0, "emitted": 1}, n_prompt + 1
    while n - n_prompt < N_TOKENS:
        n_true = 0
        while n_true < k and chains[n][n_true] == text[n + n_true]:
            n_true += 1
        for name, more in (("target_steps", 1), ("proposed", k), ("accepted", n_true), ("emitted", n_true + 1)):
            table[name] += more
        n += n_true + 1
    return table


def guess_case(model, prompt):
    text, gap = greedy(model, prompt, N_TOKENS + K_MAX + 1)
    states, chains = model.states(text), {}
    for n in range(len(prompt) + 1, len(prompt) + N_TOKENS):
        chains[n], _, near = model.chain(text[:n], states[:n - 1], K_MAX)
        gap = min(gap, near)
    if gap < GAP:
        return None
    return {"input_ids": prompt, "greedy": text[len(prompt):],
            "by_k": {str(k): count(text, len(prompt), chains, k) for k in range(1, K_MAX + 1)}}


def make_guesses(model):
    cases, seed = [], 0
    while len(cases) < N_PROMPTS:
        rng = np.random.default_rng(seed)
        found = guess_case(model, rng.integers(0, 507, rng.integers(2, 40)).tolist())
        cases += [found] if found else []
        seed += 1
    total = {k: {name: sum(case["by_k"][k][name] for case in cases) for name in cases[0]["by_k"][k]}
             for k in cases[0]["by_k"]}
    for k, sums in total.items():
        print(f"k = {k}: {sums['accepted']} of {sums['proposed']} come true")
    return {"new_tokens": N_TOKENS, "max_k": K_MAX, "total": total, "prompts": cases}


def make_goldens(models, n_vocab=507, n_rows=N_GOLDEN, n_chain=N_CHAIN):
    arrays = {}
    for name, model in models.items():
        ids = np.random.default_rng(7).integers(0, n_vocab, n_rows).tolist()
        states = model.states(ids)[:-1].float()
        own = model.predict(ids[1:], states.double())
        guesses, rows, gap = model.chain(ids, states.double(), n_chain)
        assert gap > GAP
        arrays[f"{name}.tokens"] = torch.tensor(ids[1:], dtype=torch.int32)
        arrays[f"{name}.states"] = states
        arrays[f"{name}.logits"] = (own @ model.mtp_head.T).float()
        arrays[f"{name}.guesses"] = torch.tensor(guesses, dtype=torch.int32)
        arrays[f"{name}.guess_logits"] = rows.float()
    return arrays


def make_glm(zoo2):
    import zoo2_forward

    class Glm(Predictor, zoo2_forward.Glm4Moe):
        pass

    model = Glm(os.path.join(zoo2, "glm4_moe")).setup()
    st.save(os.path.join(OUT, "glm4_moe.safetensors"), make_goldens({"glm4_moe": model}, 283, 7, 2))


def main():
    torch.set_num_threads(1)
    if len(sys.argv) > 2:
        make_glm(sys.argv[2])
        return
    os.makedirs(OUT, exist_ok=True)
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(ZOO, name), OUT)
    st.save(os.path.join(OUT, "model.safetensors"), make_weights(), {"format": "pt"})
    model = Model(OUT).setup()
    st.save(os.path.join(OUT, "goldens.safetensors"), make_goldens({"mtp": model, "zoo": Model(ZOO).setup()}))
    with open(os.path.join(OUT, "guesses.json"), "w", encoding="utf-8") as f:
        json.dump(make_guesses(model), f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
