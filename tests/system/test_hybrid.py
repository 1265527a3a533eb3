#!/usr/bin/python3
"""A sequence of 100,000 tokens on a hybrid holds what its attention layer and its states need, and no more.

The model is made here, with random weights: Nemotron-H's form, three layers of Mamba-2 and one of attention. While the
sequence is computed its KV blocks are counted by /metrics, and the memory that the worker has become larger by. All of that
has to be what `weft inspect --plan` foresees: blocks of one layer of four, and a state that knows no length.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time

import harness
from harness import Server, Stream

WEFT = os.path.join(harness.BIN_DIR, "weft")
N_TOKENS, N_OUT, BLOCK, N_VOCAB = 100_000, 40, 16, 4096
PATTERN, HIDDEN, HEAD_DIM = "MM*M", 32, 32
N_SSM, SSM_DIM, STATE, WIDTH = 4, 16, 16, 4  # heads of Mamba-2, of so many channels with a state of so many rows each
MODEL_LEN = N_TOKENS + 64
# Tables of a sequence, its tokens, sums of parts of its attention, and the heap's own: a half of what another layer
# with blocks would take.
OTHER_BYTES = 12 << 20
OPTIONS = ("--max-model-len", str(MODEL_LEN), "--max-num-seqs", "2", "--max-num-batched-tokens", "512", "--kv-memory",
           "128MiB", "--kv-dtype", "f32")


def shapes():
    inner, channels = N_SSM * SSM_DIM, N_SSM * SSM_DIM + 2 * STATE
    yield "backbone.embeddings.weight", (N_VOCAB, HIDDEN)
    for i, letter in enumerate(PATTERN):
        at = f"backbone.layers.{i}."
        yield at + "norm.weight", (HIDDEN,)
        if letter == "*":
            yield from ((at + f"mixer.{name}_proj.weight", (HEAD_DIM, HIDDEN)) for name in "qkv")
            yield at + "mixer.o_proj.weight", (HIDDEN, HEAD_DIM)
            continue
        yield from ((at + "mixer." + name, (N_SSM,)) for name in ("A_log", "D", "dt_bias"))
        yield at + "mixer.conv1d.weight", (channels, 1, WIDTH)
        yield at + "mixer.conv1d.bias", (channels,)
        yield at + "mixer.in_proj.weight", (inner + channels + N_SSM, HIDDEN)
        yield at + "mixer.norm.weight", (inner,)
        yield at + "mixer.out_proj.weight", (HIDDEN, inner)
    yield "backbone.norm_f.weight", (HIDDEN,)
    yield "lm_head.weight", (N_VOCAB, HIDDEN)


def make_model(folder):
    config = {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": HIDDEN,
              "num_hidden_layers": len(PATTERN), "hybrid_override_pattern": PATTERN, "num_attention_heads": 1,
              "num_key_value_heads": 1, "head_dim": HEAD_DIM, "attention_head_dim": HEAD_DIM, "intermediate_size": 64,
              "vocab_size": N_VOCAB, "max_position_embeddings": MODEL_LEN, "layer_norm_epsilon": 1e-5,
              "mlp_hidden_act": "relu2", "mamba_num_heads": N_SSM, "mamba_head_dim": SSM_DIM, "n_groups": 1,
              "ssm_state_size": STATE, "conv_kernel": WIDTH, "chunk_size": 128, "use_conv_bias": True,
              "time_step_limit": [0.0, 1e30], "tie_word_embeddings": False, "torch_dtype": "float32"}
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(os.path.join(harness.FABLE, name), folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    rng, header, data = random.Random(1), {}, bytearray()
    for name, shape in shapes():
        n = 1
        for size in shape:
            n *= size
        begin = len(data)
        scale, middle = (0.1, 1.0) if "norm" in name else (0.2, 0.0)
        data += struct.pack(f"<{n}f", *(middle + rng.gauss(0, scale) for _ in range(n)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def plan_of(model):
    done = subprocess.run([WEFT, "inspect", "--plan", model, "--json", "--bandwidth", "1", *OPTIONS], capture_output=True,
                          text=True, check=True, timeout=harness.LIMIT_S)
    return json.loads(done.stdout)


def used_blocks(server):
    return int(server.metric('weft_kv_blocks{state="used"}'))


def resident(server):
    return server.metric('weft_process_resident_bytes{role="worker"}')


def settled(server):
    """What is resident once the numbers that the worker says every second no longer change: the first may be of before."""
    last, since = resident(server), time.monotonic()
    deadline = since + harness.LIMIT_S
    while time.monotonic() - since < 4:
        assert time.monotonic() < deadline, last
        time.sleep(0.2)
        now = resident(server)
        if now != last:
            last, since = now, time.monotonic()
    return last


def check_plan(plan):
    """Returns what a sequence has of states."""
    longest = plan["contexts"][-1]
    n_mamba, inner = PATTERN.count("M"), N_SSM * SSM_DIM
    state = 4 * n_mamba * (inner * STATE + (inner + 2 * STATE) * (WIDTH - 1))
    assert plan["kv_block_bytes"] == BLOCK * HEAD_DIM * 2 * 4, plan  # keys and values in f32 of one layer
    assert longest["tokens"] == MODEL_LEN and longest["kv_bytes"] == -(-MODEL_LEN // BLOCK) * plan["kv_block_bytes"]
    assert state <= longest["state_bytes"] <= state + n_mamba * 256
    assert plan["state_bytes"] == (2 + plan["state_checkpoints"]) * longest["state_bytes"]
    return longest["state_bytes"]


def test_100000_tokens_hold_what_attention_and_states_need():
    if harness.SANITIZED:
        raise harness.Skip("too many tokens for a sanitizer, whose own memory is in no sum")
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder)
        plan = plan_of(folder)
        state = check_plan(plan)
        with Server(*OPTIONS, "--no-prefix-cache", "--no-rpc", model=folder) as server:
            ids = [20 + i * 7919 % 4000 for i in range(N_TOKENS - N_OUT)]
            body = {"temperature": 0, "ignore_eos": True, "max_tokens": N_OUT}
            server.complete(prompt=ids[:1500], **body)  # steps and their buffers are as large as they get
            harness.wait_until("the short sequence gives its blocks back", lambda: used_blocks(server) == 0)
            before, most, grown = settled(server), 0, 0
            stream = Stream(server, {"prompt": ids, **body})
            while not stream.is_done:
                time.sleep(0.1)
                most, grown = max(most, used_blocks(server)), max(grown, resident(server) - before)
            assert stream.events()[-1]["choices"][0]["finish_reason"] == "length"
            harness.wait_until("it gives everything back", lambda: used_blocks(server) == 0)
    need = most * plan["kv_block_bytes"]
    print(f"    {most} blocks of {plan['kv_block_bytes']} bytes and {state} bytes of states; the worker has grown by "
          f"{grown / 1e6:.1f} MB", flush=True)
    assert -(-(N_TOKENS - N_OUT) // BLOCK) <= most <= -(-N_TOKENS // BLOCK) + 2, most
    assert need * 3 // 4 <= grown <= need + OTHER_BYTES, (grown, need)


if __name__ == "__main__":
    harness.main()
