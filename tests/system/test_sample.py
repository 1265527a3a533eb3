"""Samplers: their distributions by `weft sample`, and that a server's tokens outlive deaths whatever draws them."""

import array
import functools
import json
import os
import struct
import subprocess
import tarfile
import tempfile

import harness
from harness import Server

WEFT = os.path.join(harness.BIN_DIR, "weft")
DATA = os.path.join(harness.SOURCE_DIR, "tests", "data", "sampling.tar.xz")


def sample(path, *options, isa=None):
    env = {**os.environ, **({"WEFT_ISA": isa} if isa else {})}
    return subprocess.run([WEFT, "sample", "--cases", path, *options], env=env, capture_output=True, text=True,
                          timeout=harness.LIMIT_S, check=False)


def vectors(path):
    with open(path, "rb") as file:
        n, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(n))
        data = file.read()
    ends = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: array.array("f", data[begin:end]) for name, (begin, end) in ends.items()}


def far(got, want):
    return max(abs(a - b) for a, b in zip(got, want, strict=True))


def check_cases(cases, expected, got):
    for case in cases:
        want, p = expected[case["expected"]], got[case["expected"]]
        assert far(p, want) < 1e-6, (case["expected"], case["name"], case["vector"], far(p, want))
        # What comes at least once in 10^30 draws: single floats have no smaller weights.
        for kept, probability in zip(want, p):
            assert (kept > 1e-30) == (probability > 1e-30) or 1e-35 < kept < 1e-25, (case["expected"], kept, probability)


def check_mirostat(wanted, got):
    assert len(wanted) == len(got)
    for chain, drawn in zip(wanted, got):
        for want, step in zip(chain["steps"], drawn["steps"], strict=True):
            assert (want["token"], want["kept"]) == (step["token"], step["kept"]), (chain["sampler"], want, step)
            assert all(abs(want[key] - step[key]) < 1e-6 for key in ("p", "surprise", "mu")), (want, step)


def check_contrastive(wanted, got):
    for want, search in zip(wanted, got, strict=True):
        assert (want["candidates"], want["chosen"]) == (search["candidates"], search["chosen"])
        assert all(far(search[key], want[key]) < 1e-6 for key in ("p", "max_cosine", "score"))


def test_every_distribution_is_that_of_its_definition_on_every_machine():
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(DATA) as tar:
            tar.extractall(folder)
        path = os.path.join(folder, "sampling", "sampling.json")
        with open(path, encoding="utf-8") as file:
            tests = json.load(file)
        expected, n_isas = vectors(path.replace(".json", ".safetensors")), 0
        for isa in (None, "scalar", "avx2", "avx512"):
            done = sample(path, "--json", isa=isa)
            if isa and done.returncode and isa in done.stderr:
                continue  # not on this machine
            assert done.returncode == 0, done.stderr
            got = json.loads(done.stdout)
            check_cases(tests["cases"], expected, got)
            check_mirostat(tests["mirostat"], got["mirostat"])
            check_contrastive(tests["contrastive"], got["contrastive"])
            n_isas += 1
        assert n_isas >= 2 and len(tests["cases"]) == 315
        lines = sample(path).stdout.splitlines()
        assert lines[0].startswith("case_0: 1 kept: ") and any("surprise" in line for line in lines)


def test_files_that_are_none_are_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cases.json")
        vector = struct.pack("<4f", 1, 2, 3, float("-inf"))

        def beside_of(shape, end=16):
            header = json.dumps({"logits.v": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}).encode()
            header += b" " * (-len(header) % 8)
            return struct.pack("<Q", len(header)) + header + vector

        whole = beside_of([4])

        def outcome(cases, beside=whole):
            for name, content in ((path, cases), (path.replace(".json", ".safetensors"), beside)):
                with open(name, "wb") as file:
                    file.write(content if isinstance(content, bytes) else json.dumps(content).encode())
            done = sample(path, "--json")
            assert done.returncode in (0, 1) and bool(done.returncode) != bool(done.stdout), done
            return done.stderr if done.returncode else json.loads(done.stdout)

        def case(*steps, **more):
            return {"cases": [{"name": "c", "vector": "v", "steps": list(steps), **more}]}

        p = outcome(case(["top_k", {"k": 1}]))["c"]
        assert p == [0, 0, 1, 0], p
        assert outcome({}) == {"mirostat": [], "contrastive": []}
        assert "is not JSON" in outcome(b"{")
        assert "safetensors" in outcome({}, b"short")
        assert "safetensors" in outcome({}, struct.pack("<Q", 1 << 60) + b"{}")
        assert "logits.v" in outcome(case(), whole[:-4])
        nothing = [([0, 1000000], 0), ([1000000, 0], 0), ([0], 0)]
        for shape, end in [*nothing, ([5], 16), ([3], 16), ([2, 4], 16), ([1 << 62, 4], 16), ([4], 18), ([4], 20)]:
            assert "shape and offsets" in outcome(case(), beside_of(shape, end=end)), (shape, end)
        assert "logits.w" in outcome(case(vector="w"))
        assert "no step" in outcome(case(["guess", {}]))
        assert "twice" in outcome(case(["top_k", {"k": 1}], ["top_k", {"k": 2}]))
        assert "typical_p" in outcome(case(["typical", {"mass": 7}]))
        history = {"prompt": [9], "output": [], "repetition": 2}
        assert "token 9" in outcome(case(["penalties", history]))
        assert "token ids" in outcome(case(["penalties", {**history, "prompt": [-1]}]))
        for wrong, words in (
            ({"cases": 5}, '"cases" must be a list'), ({"cases": [5]}, "cases[0]"), ([], "no object"),
            (case(vector=5), '"vector" must be a text'), ({"cases": [{"vector": "v", "steps": 5}]}, '"steps" must be a list'),
            (case(["top_k"]), "top_k: there is no object"), (case(["top_k", {"k": "x"}]), '"k" must be a whole number'),
            (case([5, {}]), "step 0"), (case(["temperature", {"t": 1e308}]), '"t" must be a number'),
            (case(["xtc", {"threshold": 0.1, "probability": 1, "draw": -5}]), '"draw" must be a number from 0 to 1'),
            (case(["logit_bias", {"bias": {"1": 1, "01": 2}}]), "none twice"),
            ({"mirostat": [{"sampler": "mirostat3", "tau": 1, "eta": 1, "mu_start": 1, "steps": []}]}, "mirostat[0]"),
            ({"mirostat": [{"sampler": "mirostat2", "tau": 1, "eta": 1, "mu_start": 1,
                            "steps": [{"vector": "v", "draw": 1e308}]}]}, '"draw" must be'),
            ({"contrastive": [{"vector": "v", "alpha": 1e308}]}, '"alpha" must be a number from 0 to 1'),
        ):
            assert words in outcome(wrong), (wrong, words)
        assert "w" in outcome({"cases": [*case()["cases"], *case(vector="w")["cases"]]})  # and none of the first
        assert "finite" in outcome(case(), whole[:-16] + struct.pack("<4f", *[float("nan")] * 4))


def test_penalties_see_all_tokens_or_none_or_say_so():
    def run(*args):
        done = subprocess.run([WEFT, "run", harness.FABLE, "-p", "A fox, a fox, a fox", "-n", "24", *args],
                              capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
        return done.stdout if done.returncode == 0 else done.stderr

    plain, llama = run(), ("--sampler-variant", "llama.cpp")
    penalised = run("--repetition-penalty", "1.5")
    assert penalised != plain and run("--repetition-penalty", "1.5", *llama) == penalised
    for variant in ((), llama):
        assert run("--repetition-penalty", "1.5", "--repeat-last-n", "0", *variant) == plain
    assert "--repeat-last-n can only be -1 or 0" in run("--presence-penalty", "1", "--repeat-last-n", "8")
    assert run("--repetition-penalty", "1.5", "--repeat-last-n", "8", *llama) != plain
    assert run("--repeat-last-n", "8") == plain


def ids_of(server, body):
    reply = server.post("/v1/completions", {"return_token_ids": True, **body})
    assert reply.status == 200, (reply.status, reply.text)
    return [choice["token_ids"] for choice in reply.json["choices"]]


def test_tokens_are_the_same_whoever_dies():
    """mu and averages go with the tokens; histories are those of the sequence; chances are of its seed."""
    kinds = [{"mirostat": 1}, {"mirostat": 2, "n": 2}, {"mirostat": 1, "sampler_variant": "llama.cpp"},
             {"adaptive_target": 0.3, "min_p": 0.02}, {"dry_multiplier": 0.8}, {"xtc_probability": 0.5},
             {"samplers": ["top_k", "typ_p", "temperature", "penalties"], "top_k": 50, "typical_p": 0.9,
              "presence_penalty": 0.5, "repeat_last_n": 20, "sampler_variant": "llama.cpp"},
             {"dynatemp_range": 0.7, "tfs_z": 0.97}, {"mirostat": 2, "guided_regex": "[a-z ,.]+"}]
    with Server("--max-num-seqs", "6") as server:
        requests = [{"prompt": "Once upon a time", "max_tokens": 90, "ignore_eos": True, "seed": seed, **kind}
                    for seed, kind in enumerate(kinds)]
        alone = [ids_of(server, body) for body in requests]
        assert len({str(ids) for ids in alone}) == len(kinds)  # each has its part in them
        n_tokens = sum(len(ids) for choices in alone for ids in choices)
        with harness.Killer(server, ["worker", "scheduler"], n_tokens // 8) as killer:
            together = harness.in_threads([functools.partial(ids_of, server, body) for body in requests])
        assert killer.n >= 3 and together == alone, killer.n


if __name__ == "__main__":
    harness.main()
