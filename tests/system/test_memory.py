#!/usr/bin/python3
"""Memory over the limit: refused before it is taken, or, where the system kills, told and given up."""

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time

import harness
from harness import Skip

WEFT = os.path.join(harness.BIN_DIR, "weft")
MIB = 1 << 20
N_LAYERS, N_FFN = 24, 8192  # 300 MiB in bf16


def make_model(folder):
    """A model of zeros like models/fable-6m, only larger; a sparse file, so it takes no disk."""
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(os.path.join(harness.FABLE, name), folder)
    with open(os.path.join(harness.FABLE, "config.json"), encoding="utf-8") as f:
        config = {**json.load(f), "num_hidden_layers": N_LAYERS, "intermediate_size": N_FFN}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    shapes = {"model.embed_tokens": (4096, 256), "lm_head": (4096, 256), "model.norm": (256,)}
    for i in range(N_LAYERS):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm": (256,), at + "post_attention_layernorm": (256,),
                   at + "self_attn.q_proj": (256, 256), at + "self_attn.k_proj": (128, 256),
                   at + "self_attn.v_proj": (128, 256), at + "self_attn.o_proj": (256, 256),
                   at + "mlp.gate_proj": (N_FFN, 256), at + "mlp.up_proj": (N_FFN, 256),
                   at + "mlp.down_proj": (256, N_FFN)}
    header, used = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [used, used + size]}
        used += size
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + used)
    return folder


@contextlib.contextmanager
def memory_group(limit_mib):
    """A control group with this limit, below our own: its folder. Of version 1 or 2, whichever there is."""
    groups = dict(line.strip().split(":", 2)[1:] for line in open("/proc/self/cgroup", encoding="ascii"))
    if "memory" in groups:
        above, limit_file = "/sys/fs/cgroup/memory" + groups["memory"], "memory.limit_in_bytes"
    else:
        above, limit_file = "/sys/fs/cgroup" + groups.get("", "/"), "memory.max"
    folder = os.path.join(above, f"weft-test-{os.getpid()}-{time.monotonic_ns()}")
    try:
        os.mkdir(folder)
    except OSError as why:
        raise Skip(f"no control group can be made here: {why}") from why
    try:
        try:
            with open(os.path.join(folder, limit_file), "w", encoding="ascii") as f:
                f.write(str(limit_mib * MIB))
            for swap, value in (("memory.memsw.limit_in_bytes", limit_mib * MIB), ("memory.swap.max", 0)):
                with contextlib.suppress(OSError), open(os.path.join(folder, swap), "r+", encoding="ascii") as f:
                    f.write(str(value))
        except OSError as why:
            raise Skip(f"no memory limit can be set here: {why}") from why
        yield folder
    finally:
        def is_gone():
            with contextlib.suppress(OSError):
                os.rmdir(folder)
            return not os.path.exists(folder)
        harness.wait_until("the group to be empty", is_gone)


def within(group, *command):
    """A command line that runs in the group."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]


def ended(group, *args):
    return subprocess.run(within(group, WEFT, *args), capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)


def needs_memory(model):
    """Sanitizers need more memory than these limits allow."""
    if harness.SANITIZED:
        raise Skip("a sanitizer takes more than the limits of this test")
    return make_model(model)


def test_a_model_over_the_limit_is_refused_at_once_with_the_numbers():
    with tempfile.TemporaryDirectory() as folder, memory_group(200) as group:
        model = needs_memory(folder)
        words = re.compile(r"^weft: \S+ needs 3\d\d MiB \(weights 3\d\d MiB, KV cache \d+ \w+, scratch \d+ MiB\), the limit is "
                           r"200 MiB \(of the control group\), of which 1\d\d MiB can be had: .*--dtype.*--kv-memory.*"
                           r"--max-model-len.*$")
        for args in (("serve", model, "--port=0", "--no-rpc", "--workers=1"), ("run", model, "-p", "x"), ("bench", model)):
            done = ended(group, *args)
            lines = done.stderr.splitlines()
            assert done.returncode == 1 and words.match(lines[-1]), done.stderr
            assert not any("killed" in line or "starting it again" in line for line in lines), done.stderr
        done = ended(group, "serve", harness.FABLE, "--port=0", "--no-rpc", "--kv-memory=1GiB", "--workers=1")
        assert done.returncode == 1 and "KV cache 1.0 GiB" in done.stderr.splitlines()[-1], done.stderr


def test_what_fits_is_served_and_its_default_cache_shrinks():
    with tempfile.TemporaryDirectory() as folder, memory_group(450) as group:
        model = needs_memory(folder)
        with subprocess.Popen(within(group, WEFT, "serve", model, "--port=0", "--no-rpc", "--max-num-seqs=256",
                                     "--max-num-batched-tokens=256", "--workers=1"), stderr=subprocess.PIPE, text=True) as proc:
            lines = []
            for line in proc.stderr:
                lines.append(line)
                if line.startswith("weft: ready on"):
                    proc.terminate()
            assert proc.wait(harness.LIMIT_S) == 0, lines
        n_blocks = int(re.search(r"loaded .* (\d+) KV blocks of 16 tokens", "".join(lines)).group(1))
        assert 0 < n_blocks < 256 * 1024 / 16 / 10, lines
        packed = os.path.join(folder, "packed.weft")
        subprocess.run([WEFT, "pack", model, packed], capture_output=True, timeout=harness.LIMIT_S, check=True)
        with memory_group(200) as small:  # its pages are the page cache's, which the kernel may drop
            done = ended(small, "run", packed, "-p", "x", "-n", "2", "--json")
            assert done.returncode == 0 and len(json.loads(done.stdout)["ids"]) == 2, done
            assert "will be read again and again" in done.stderr, done


class Killed:
    """A server whose worker says what it needs and is then killed, as by the system, when the test says so."""

    def __init__(self, folder):
        self.folder, self.lives = folder, os.path.join(folder, "lives")
        for name in ("weft", "weft-router", "weft-scheduler"):
            shutil.copy(os.path.join(harness.BIN_DIR, name), folder)
        with open(os.path.join(folder, "weft-worker"), "w", encoding="utf-8") as f:
            f.write(f"""#!/bin/sh
                for arg; do case $arg in --status-fd=*) fd=${{arg#*=}};; esac; done
                echo "needs 2.3 GiB (weights 2.1 GiB, KV cache 128 MiB, scratch 60 MiB), limit 1.2 GiB" >&$fd
                echo >> {self.lives}
                until [ -e {folder}/die-$(wc -l < {self.lives}) ]; do sleep 0.02; done
                kill -9 $$\n""")
        os.chmod(f.name, 0o755)
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.proc = subprocess.Popen([os.path.join(folder, "weft"), "serve", harness.FABLE, f"--port={self.port}", "--no-rpc"],
                                     stderr=subprocess.PIPE, text=True)

    def let_die(self, n):
        open(os.path.join(self.folder, f"die-{n}"), "w", encoding="ascii").close()

    def get(self, path):
        with contextlib.suppress(OSError, http.client.HTTPException):
            conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.LIMIT_S)
            conn.request("GET", path)
            reply = conn.getresponse()
            return reply.status, reply.read().decode()
        return 0, ""


def test_workers_that_the_system_kills_while_loading_are_counted_and_given_up():
    with tempfile.TemporaryDirectory() as folder:
        server = Killed(folder)
        try:
            harness.wait_until("the model to be loaded", lambda: "being loaded" in server.get("/health")[1])
            assert "died" not in server.get("/health")[1]
            server.let_die(1)
            harness.wait_until("the loss to be counted", lambda: re.search(
                r"^weft_worker_losses_total\S* 1$", server.get("/metrics")[1], re.M))
            status, text = server.get("/health")
            assert status == 503 and "being loaded again: a worker died" in text, text
            server.let_die(2)
            server.let_die(3)
            said = server.proc.communicate(timeout=harness.LIMIT_S)[1]
            assert server.proc.returncode == 1, said
            assert said.splitlines()[-1] == (
                "weft: the worker was killed by the system, most likely out of memory: needs 2.3 GiB (weights 2.1 GiB, KV "
                "cache 128 MiB, scratch 60 MiB), limit 1.2 GiB (before it was ready, 3 times in a row)"), said
            with open(server.lives, encoding="ascii") as f:
                assert len(f.readlines()) == 3
        finally:
            server.proc.kill()
            server.proc.wait()


if __name__ == "__main__":
    harness.main()
