"""Every architecture and weight format, through HTTP and nothing else, against float64 references.

The small models of tests/data/zoo and tests/data/formats are served with --activations f32, the exact mode. The server
is asked for the log-probabilities of the whole vocabulary at every position, of the prompt and of its continuation:
all that the API can tell of logits. Then models with latent attention and with experts answer many requests at once,
and in a cache too small for them, with the very bits of their answers to one request alone.
"""

import array
import functools
import glob
import itertools
import json
import math
import os
import struct
import tempfile

import harness
from harness import Server

DATA = os.path.join(harness.SOURCE_DIR, "tests/data")
SHARED = os.environ.get("WEFT_SHARED_DIR", os.path.join(harness.SOURCE_DIR, "../shared"))
LOGIT_TOLERANCE = 1e-3
MARGIN = 0.01  # of the best token over the second; below it, another may be chosen
TYPES = {"F32": "f", "I32": "i"}
NVFP4 = 40  # in GGUF files


def read_goldens(folder):
    """{name: flat array} of a safetensors file; of logits only the last rows of a prompt may be there."""
    with open(os.path.join(folder, "goldens.safetensors"), "rb") as f:
        data = f.read()
    n, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    arrays = {}
    for name, info in header.items():
        if name != "__metadata__" and info["dtype"] in TYPES:
            begin, end = info["data_offsets"]
            arrays[name] = array.array(TYPES[info["dtype"]], data[8 + n + begin:8 + n + end])
    return arrays


def prompts_of(goldens):
    """[(ids, logits, greedy ids, their margins)], by the names of the zoo or those of the formats."""
    found = []
    for name in goldens:
        if name.endswith(".input_ids"):
            prompt = name.removesuffix(".input_ids")
            greedy, margin = ("greedy", "margin") if "_" in prompt else ("greedy_ids", "greedy_margin")
            found.append((list(goldens[name]), goldens[prompt + ".logits"], list(goldens[f"{prompt}.{greedy}"]),
                          list(goldens[f"{prompt}.{margin}"])))
    assert len(found) == 4, list(goldens)
    return sorted(found, key=lambda prompt: len(prompt[0]))


def prompts_of_type(goldens, kind):
    """The same of a quantised file: one prompt, and greedy goes as far as its last logits do."""
    ids, logits = list(goldens["input_ids"]), goldens[kind + ".logits"]
    last = logits[-(len(logits) // len(ids)):]
    second, best = sorted(last)[-2:]
    return [(ids, logits, [last.index(best)], [best - second])]


def log_softmax(logits):
    best = max(logits)
    total = best + math.log(math.fsum(math.exp(x - best) for x in logits))
    return [x - total for x in logits]


def difference(got, logits):
    """How far the logits behind a row of log-probabilities are from the golden ones, at the least.

    A log-softmax subtracts the same number from all logits of a row, the logarithm of their sum, and with it their
    common error. The rest gives a bound: logits within E of the golden ones have log-probabilities whose differences
    from the golden ones lie within an interval of length 2 E (and it holds 0). Conversely, logits with such an
    interval of length 2 E are within E but for a common shift, which no log-probability ever shows. So half that
    length is compared with the tolerance; no bound on log-probabilities one by one is as tight: E for the logits only
    gives 2 E for each of them, and 2 E for each of them only gives 2 E for the logits."""
    off = [x - y for x, y in zip(got, log_softmax(logits), strict=True)]
    assert math.isfinite(sum(off))  # a NaN would be lost on max() and min()
    return (max(0.0, *off) - min(0.0, *off)) / 2


def exact(server, prompt):
    """Compares a prompt and its continuation; the largest difference of a logit."""
    ids, logits, greedy, margins = prompt
    n_rows, rest = divmod(len(logits), server.n_vocab)
    assert rest == 0 < n_rows <= len(ids)
    reply = server.complete(prompt=ids, echo=True, max_tokens=len(greedy), temperature=0, ignore_eos=True,
                            logprobs=server.n_vocab, return_tokens_as_token_ids=True)
    choice, = reply["choices"]
    tokens, tops = harness.tokens_of(choice), choice["logprobs"]["top_logprobs"]
    assert [token for token, _ in tokens[:len(ids)]] == ids and len(tokens) == len(ids) + len(greedy)
    assert tokens[0][1] is None and tops[0] is None  # nothing came before it
    worst, n_compared, names = 0.0, 0, [f"token_id:{i}" for i in range(server.n_vocab)]
    for i, ((token, logprob), top) in enumerate(zip(tokens[1:], tops[1:], strict=True)):
        values = list(top.values())
        assert logprob == top[names[token]] and values == sorted(values, reverse=True) and len(top) == server.n_vocab
        row = i - (len(ids) - n_rows)  # the logits of position i are those of the next token
        if 0 <= row < n_rows:
            golden = logits[row * server.n_vocab:(row + 1) * server.n_vocab]
            worst = max(worst, difference([top[name] for name in names], golden))
            n_compared += 1
    assert n_compared == n_rows
    for (token, _), want, margin in zip(tokens[len(ids):], greedy, margins, strict=True):
        assert token == want or margin <= MARGIN, (tokens[len(ids):], greedy, margins)
        if token != want:
            break  # from here on it is another text
    return worst


def serve(model, folder, *args):
    """A server of the exact mode that tells log-probabilities of the whole vocabulary, whose size FOLDER knows."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        n_vocab = json.load(f)["vocab_size"]
    server = Server("--activations", "f32", "--max-logprobs", str(n_vocab), *args, model=model)
    server.n_vocab = n_vocab
    return server


def check_exact(name, server, prompts):
    worst = [exact(server, prompt) for prompt in prompts]
    print(f"    {name}: prompts of {', '.join(str(len(ids)) for ids, *_ in prompts)} tokens, "
          f"largest difference {max(worst):.1e}", flush=True)
    assert max(worst) <= LOGIT_TOLERANCE


def some(names, of_sanitized):
    """All of them; a few in a sanitizer's build, which is ten times as slow."""
    assert len(names) > len(of_sanitized) and set(of_sanitized) <= set(names), names
    return of_sanitized if harness.SANITIZED else names


def names_of(pattern):
    return sorted(os.path.basename(os.path.dirname(path)) for path in glob.glob(os.path.join(DATA, pattern)))


def check_chat(server):
    """The template of the folder, which is the same in all of them: tested by its output."""
    body = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
    chat = server.chat(messages=[{"role": "user", "content": "A sea\n"}], **body)
    text = server.complete(prompt="<|im_start|>user\nA sea\n<|im_end|>\n<|im_start|>assistant\n",
                           add_special_tokens=False, **body)
    assert chat["choices"][0]["message"]["content"] == text["choices"][0]["text"], (chat, text)
    assert chat["usage"]["prompt_tokens"] == text["usage"]["prompt_tokens"], (chat, text)


def test_every_folder_yields_the_golden_logits():
    names = [name for name in names_of("zoo/*/goldens.safetensors") if name != "llama_quant"]
    def check(name):
        folder = os.path.join(DATA, "zoo", name)
        with serve(folder, folder) as server:
            check_exact(name, server, prompts_of(read_goldens(folder)))
            check_chat(server)
    harness.for_each(some(names, ["deepseek_v2", "deepseek_v3_fp8", "gemma3", "olmoe", "phi3_longrope"]), check)


def write_safetensors(path, tensors, data):
    header = json.dumps(tensors).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + data)


def wrap(folder, out, prefix, head):
    """The folder's model as the language part of a larger one: renamed tensors, and a shard of another part's."""
    for name in os.listdir(folder):
        if name not in ("config.json", "model.safetensors"):
            os.symlink(os.path.join(folder, name), os.path.join(out, name))
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    whole = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "vision_config": {},
             "eos_token_id": config["eos_token_id"], "text_config": config}
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(whole, f)
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        data = f.read()
    n, = struct.unpack_from("<Q", data)
    text = {head if name == "lm_head.weight" else name.replace("model.", prefix, 1): info
            for name, info in json.loads(data[8:8 + n]).items() if name != "__metadata__"}
    vision = {"vision_tower.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    write_safetensors(os.path.join(out, names[0]), text, data[8 + n:])
    write_safetensors(os.path.join(out, names[1]), vision, bytes(4))
    with open(os.path.join(out, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"weight_map": {**dict.fromkeys(text, names[0]), **dict.fromkeys(vision, names[1])}}, f)


def test_the_language_part_of_a_larger_model_yields_the_golden_logits():
    folder = os.path.join(DATA, "zoo/gemma3")
    for prefix, head in (("language_model.model.", "language_model.lm_head.weight"),
                         ("model.language_model.", "lm_head.weight")):
        with tempfile.TemporaryDirectory() as out:
            wrap(folder, out, prefix, head)
            with serve(out, folder) as server:
                check_exact(prefix, server, prompts_of(read_goldens(folder))[2:])


def test_every_gguf_file_yields_the_golden_logits_of_its_folder():
    names = [os.path.basename(path)[:-5] for path in sorted(glob.glob(os.path.join(DATA, "zoo/gguf/*.gguf")))]
    def check(name):
        folder = os.path.join(DATA, "zoo", name)
        with serve(os.path.join(DATA, f"zoo/gguf/{name}.gguf"), folder) as server:
            check_exact(f"{name}.gguf", server, prompts_of(read_goldens(folder)))
    harness.for_each(some(names, ["deepseek_v3", "gemma3"]), check)


def test_every_quantised_gguf_file_yields_the_golden_logits_of_its_type():
    folder = os.path.join(DATA, "zoo/llama_quant")
    goldens = read_goldens(folder)
    names = [os.path.basename(path)[:-5] for path in sorted(glob.glob(os.path.join(folder, "*.gguf")))]
    def check(name):
        with serve(os.path.join(folder, f"{name}.gguf"), folder) as server:
            check_exact(f"llama_quant/{name}.gguf", server, prompts_of_type(goldens, name))
    harness.for_each(some(names, ["Q4_K", "Q8_0"]), check)


def test_every_gguf_file_of_few_bits_yields_the_golden_logits_of_its_type():
    folder = os.path.join(SHARED, "zoo2/gguf_types")
    if not os.path.isdir(folder):
        print("    SKIPPED: no zoo2/gguf_types in WEFT_SHARED_DIR", flush=True)
        return
    goldens = read_goldens(folder)
    names = [os.path.basename(path)[:-5] for path in sorted(glob.glob(os.path.join(folder, "*.gguf")))]
    assert len(names) == 12, names
    def check(name):
        with serve(os.path.join(folder, f"{name}.gguf"), folder) as server:
            check_exact(f"gguf_types/{name}.gguf", server, prompts_of_type(goldens, name))
    harness.for_each(some(names, ["IQ2_XS", "NVFP4"]), check)


def halve_by_scales(source, out):
    """A file of NVFP4 with scales of e4m3 twice as large, and one of 0.5 beside each matrix: the same weights."""
    with open(source, "rb") as f:
        data = bytearray(f.read())
    n_tensors, = struct.unpack_from("<Q", data, 8)
    matrices = []  # (name, elements, offset)
    first = b"token_embd.weight"  # the table's rows are gathered, so it has no scale
    at = data.index(struct.pack("<Q", len(first)) + first)
    for _ in range(n_tensors):
        length, = struct.unpack_from("<Q", data, at)
        name, at = bytes(data[at + 8:at + 8 + length]), at + 8 + length
        n_dims, = struct.unpack_from("<I", data, at)
        *dims, kind, offset = struct.unpack_from(f"<{n_dims}QIQ", data, at + 4)
        at += 4 + 8 * n_dims + 12
        if kind == NVFP4 and name != first:
            matrices.append((name.replace(b".weight", b".scale"), math.prod(dims), offset))
    start = -(-at // 32) * 32
    for _, count, offset in matrices:
        for block in range(start + offset, start + offset + count // 64 * 36, 36):
            for i in range(block, block + 4):
                assert data[i] <= 0x76
                data[i] += 8 if data[i] >= 8 else data[i]
    end = -(-len(data) // 32) * 32 - start
    infos = b"".join(struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 1, 0, end + 32 * i)
                     for i, (name, _, _) in enumerate(matrices))
    struct.pack_into("<Q", data, 8, n_tensors + len(matrices))
    head = bytes(data[:at]) + infos
    with open(out, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data[start:] + bytes(-len(data) % 32))
        f.write((struct.pack("<f", 0.5) + bytes(28)) * len(matrices))


def test_nvfp4_with_scales_of_whole_matrices_yields_the_same():
    folder = os.path.join(SHARED, "zoo2/gguf_types")
    if not os.path.isdir(folder):
        print("    SKIPPED: no zoo2/gguf_types in WEFT_SHARED_DIR", flush=True)
        return
    with tempfile.TemporaryDirectory() as out:
        path = os.path.join(out, "scaled.gguf")
        halve_by_scales(os.path.join(folder, "NVFP4.gguf"), path)
        with serve(path, folder) as server:
            check_exact("NVFP4 with scales", server, prompts_of_type(read_goldens(folder), "NVFP4"))


def lend_tokenizer(folder, out, n_vocab):
    """The folder's files and a tokenizer of as many letters: the folder has none, and the server wants one."""
    for name in os.listdir(folder):
        os.symlink(os.path.join(folder, name), os.path.join(out, name))
    vocab = {chr(ord("!") + i) if i < 94 else chr(ord("\u00ae") + i - 94): i for i in range(n_vocab)}
    assert len(vocab) == n_vocab
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                 "decoder": {"type": "ByteLevel"},
                 "model": {"type": "BPE", "vocab": vocab, "merges": []}}
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(tokenizer, f)


def test_every_quantised_folder_yields_the_golden_logits():
    def check(name):
        folder = os.path.join(DATA, "formats", name)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            n_vocab = json.load(f)["vocab_size"]
        with tempfile.TemporaryDirectory() as lent:
            lend_tokenizer(folder, lent, n_vocab)
            with serve(lent, folder) as server:
                check_exact(name, server, prompts_of(read_goldens(folder)))
    harness.for_each(some(names_of("formats/*/goldens.safetensors"), ["awq", "nf4"]), check)


def test_shared_quantised_folders_yield_the_golden_logits():
    names = ["llama_fp8_channel", "llama_fp8_static", "llama_gptq8", "llama_w4a16", "llama_w8a8"]
    folders = [os.path.join(SHARED, "zoo2", name) for name in names]
    if not os.path.isdir(folders[0]):
        print("    SKIPPED: no zoo2/llama_fp8_channel in WEFT_SHARED_DIR", flush=True)
        return
    def check(folder):
        with serve(folder, folder) as server:
            check_exact(os.path.basename(folder), server, prompts_of(read_goldens(folder)))
            check_chat(server)
    harness.for_each(some(folders, [folders[-1]]), check)


def test_a_damaged_weight_is_said_in_the_log_and_stays_with_its_request():
    folder = os.path.join(DATA, "zoo/olmoe")
    with tempfile.TemporaryDirectory() as out:
        for name in os.listdir(folder):
            if name != "model.safetensors":
                os.symlink(os.path.join(folder, name), os.path.join(out, name))
        with open(os.path.join(folder, "model.safetensors"), "rb") as f:
            data = bytearray(f.read())
        n, = struct.unpack_from("<Q", data)
        embedding = json.loads(data[8:8 + n])["model.embed_tokens.weight"]
        row = 8 + n + embedding["data_offsets"][0] + 7 * embedding["shape"][1] * 2
        data[row:row + 2] = b"\xc0\x7f"  # NaN in BF16
        with open(os.path.join(out, "model.safetensors"), "wb") as f:
            f.write(data)
        good = {"prompt": [1, 2, 3], "max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": 5}
        with Server(model=folder) as server:
            want = answer(server, good)
        with Server(model=out) as server:
            assert answer(server, good) == want
            for _ in range(2):
                assert server.complete(**{**good, "prompt": [1, 7, 2]})["usage"]["completion_tokens"] == 8
            assert answer(server, good) == want
        assert sum("logits are not numbers" in line for line in server.lines) == 1, server.lines


# company and preemption ---------------------------------------------------------------------------
def make_requests(rng, folder):
    """Four long ones, which begin with two or three blocks and end with 15 or 16. Then every golden prompt, greedy and
    sampled, and sampled ones of several choices."""
    ids = [prompt[0] for prompt in prompts_of(read_goldens(folder))]
    common = {"logprobs": 5, "return_tokens_as_token_ids": True, "ignore_eos": True}
    requests = [{"prompt": ids[2][i:], "max_tokens": 210, "temperature": i % 2, "seed": rng.getrandbits(63)}
                for i in range(4)]
    for prompt, (max_tokens, temperature) in itertools.product(ids, ((24, 0), (70, 1), (9, 1.5))):
        requests.append({"prompt": prompt, "max_tokens": max_tokens, "temperature": temperature,
                         "echo": max_tokens == 24, "n": 3 if max_tokens == 9 else 1, "seed": rng.getrandbits(63)})
    return [{**common, **body} for body in requests]


def answer(server, body):
    reply = server.complete(**body)
    return [(c["index"], c["finish_reason"], c["text"], c["logprobs"]) for c in reply["choices"]]


def answers_together(server, requests, order):
    """All of them are there before the first step: the long ones, then the others in this order."""
    with server.stopped() as still:
        calls = {i: harness.Call(lambda i=i: answer(server, requests[i])) for i in order}
        still.wait_until("all to be taken in", lambda: harness.load(server.metrics()) == len(requests))
    return [calls[i].result() for i in range(len(requests))]


def order_of(rng, requests):
    return list(range(4)) + rng.sample(range(4, len(requests)), len(requests) - 4)


def check_equal(name, requests, alone, together):
    for body, a, b in zip(requests, alone, together, strict=True):
        assert a == b, f"{name}: this answer differs: {body}\nalone    {a}\ntogether {b}"


def block_bytes(folder):
    """Bytes of 16 tokens in f32: a latent and a key per layer with latent attention, else keys and values."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    if "kv_lora_rank" in config:
        n = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
        n = 2 * config["num_key_value_heads"] * head_dim
    return 16 * 4 * n * config["num_hidden_layers"]


def company(folder, requests, order):
    """The answers of all at once, then of each alone, from one server: the cache is cold for the former."""
    with serve(folder, folder) as server:
        return answers_together(server, requests, order), [answer(server, body) for body in requests]


def small_cache(folder, requests, order, n_tokens):
    """The answers of all at once and the number of preemptions, with 24 blocks, of which a sequence may have 16."""
    with serve(folder, folder, "--max-model-len", "256", "--kv-memory", str(24 * block_bytes(folder)),
               "--max-num-batched-tokens", n_tokens) as server:
        assert server.metric("weft_kv_blocks") == 24
        together = answers_together(server, requests, order)
        server.wait_idle()  # the report that counts the last preemption has come
        return together, server.metric("weft_num_preemptions_total")


def test_answers_do_not_depend_on_company():
    rng = harness.rng()

    def check(case):
        name, folder, requests, orders = case
        together, alone = harness.attempt(functools.partial(company, folder, requests, orders[0]))
        check_equal(name, requests, alone, together)
    names = some(["deepseek_v2", "deepseek_v3", "deepseek_v3_fp8", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe"], ["deepseek_v3"])
    harness.for_each(cases_of(rng, names), check)


def cases_of(rng, names):
    """[(name, folder, requests, two orders of them)]"""
    cases = []
    for name in names:
        folder = os.path.join(DATA, "zoo", name)
        requests = make_requests(rng, folder)
        cases.append((name, folder, requests, [order_of(rng, requests) for _ in range(2)]))
    return cases


def test_preempted_sequences_go_on_as_if_nothing_had_been():
    """Phi-3's prompts are short for LongRoPE and the answers long: tokens computed again are not of the kind that a
    prompt of that length would be."""
    rng = harness.rng()

    def check(case):
        name, folder, requests, orders = case
        with serve(folder, folder) as server:
            alone = [answer(server, body) for body in requests]
        for order, n_tokens in zip(orders, ("16", "512"), strict=True):
            together, preemptions = harness.attempt(functools.partial(small_cache, folder, requests, order, n_tokens))
            print(f"    {name}, {n_tokens} tokens per step: {preemptions:.0f} preemptions", flush=True)
            assert preemptions > 0, "the cache was meant to be too small"
            check_equal(name, requests, alone, together)
    harness.for_each(cases_of(rng, some(["deepseek_v2", "deepseek_v3", "olmoe", "phi3_longrope"], ["deepseek_v2"])), check)


if __name__ == "__main__":
    harness.main()
