"""Sessions: what a conversation has computed is kept for its next turn, written to a file, read back by another server."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

import harness
from harness import Server
from rpc import Rpc

DATA = os.path.join(harness.SOURCE_DIR, "tests/data")
STORY = ("Once upon a time there was a little fox who lived in the forest and wanted to see the sea. Every day he asked the "
         "birds about it, and every day they told him another story. ") * 3


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="weft-sessions-")
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextlib.contextmanager
def serving(*args, **more):
    """A server whose sessions are forgotten in the end, so that it can show that no other block is in use."""
    with Server(*args, **more) as server:
        yield server
        harness.wait_until("the cache to forget", lambda: server.post("/reset_prefix_cache", {}).status == 200)
        harness.wait_until("sessions to go", lambda: server.metrics()["weft_sessions"] == 0)


def say(server, prompt=STORY, session="talk", **body):
    return server.complete(**{"prompt": prompt, "session_id": session, "max_tokens": 24, "logprobs": 5, "seed": 3,
                              "temperature": 0.8, "return_tokens_as_token_ids": True, **body})


def said(answer):
    """All that must be the same, to the bit."""
    return answer["choices"]


def n_cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def path_of(session, action=""):
    return "/v1/sessions/" + urllib.parse.quote(session, safe="") + action


def file_call(server, action, name, session="talk"):
    return server.post(path_of(session, "/" + action), {"filename": name})


def sessions(server):
    reply = server.get("/v1/sessions")
    assert reply.status == 200, reply.text
    return {s["id"]: s for s in reply.json["data"]}


def refused(reply, status, *words):
    assert reply.status == status, (reply.status, reply.text)
    message = reply.json["error"]["message"]
    assert all(word in message for word in words), message


def test_the_next_turn_finds_what_was_said():
    with serving() as server:
        first = say(server)
        assert n_cached(first) == 0
        found = sessions(server)["talk"]
        assert found["object"] == "session" and found["n_tokens"] == 16 * found["n_blocks"]
        n = first["usage"]["prompt_tokens"]
        assert n <= found["n_tokens"] + 16 <= n + 24 + 16
        harness.wait_until("figures", lambda: server.metrics()["weft_session_blocks"] == found["n_blocks"])
        turn = STORY + first["choices"][0]["text"] + " Then"
        again = say(server, turn)
        assert n_cached(again) >= n - 16
        assert said(again) == said(say(server, turn, session="other", cache_salt="apart"))
        assert server.request("DELETE", path_of("other")).json["deleted"] is True
        refused(server.request("DELETE", path_of("other")), 404, "no such session")
        for name in ("save", "restore"):
            refused(server.request("DELETE", path_of(name)), 404, "no such session")
        assert list(sessions(server)) == ["talk"]
        server.chat(messages=[{"role": "user", "content": "Hello, who are you?"}], session_id="a chat", max_tokens=40)
        assert set(sessions(server)) == {"talk", "a chat"}
        with Rpc(server) as rpc:
            error, _ = rpc.call(1, "generate", {"prompt": STORY, "max_tokens": 2, "session_id": "by rpc \u00e4"})
            assert error is None, error
        assert sessions(server)["by rpc \u00e4"]["n_blocks"] > 0
        assert server.request("DELETE", path_of("by rpc \u00e4")).status == 200
        refused(server.post("/v1/completions", {"prompt": "x", "session_id": ""}), 400, "session_id")
        refused(server.post("/v1/completions", {"prompt": "x", "session_id": "y" * 129}), 400, "session_id")
        assert server.get(path_of("talk")).status == 405
        assert server.get("/v1/sessions/a/b").status == 404


def test_they_go_with_time_and_by_number():
    with serving("--max-sessions", "2") as server:
        for name in "abc":
            say(server, f"{name}: {STORY}", session=name)
        assert set(sessions(server)) == {"b", "c"}
        harness.wait_until("figures", lambda: server.metrics()["weft_sessions_evicted_total"] == 1)
        assert server.metrics()["weft_sessions_expired_total"] == 0
    with serving("--session-ttl", "1") as server:
        for name in "ab":
            say(server, f"{name}: {STORY}", session=name)
        harness.wait_until("their time to be over", lambda: not sessions(server))
        harness.wait_until("figures", lambda: server.metrics()["weft_sessions_expired_total"] == 2)
        assert server.metrics()["weft_sessions_evicted_total"] == 0
    with serving("--session-ttl", "0") as server:
        say(server)
        assert not sessions(server)
        refused(file_call(server, "save", "x"), 400, "--session-ttl is 0")
    with serving("--no-prefix-cache") as server:
        refused(file_call(server, "save", "x"), 400, "--no-prefix-cache")


def test_requests_take_their_blocks():
    """What sessions hold nobody lacks: a stream that wants nearly all blocks is neither refused nor preempted."""
    with serving("--kv-memory", "1MiB") as server:
        n_blocks = server.get("/v1/models").json["data"][0]["max_model_len"] // 16
        for i in range(3):
            say(server, f"{i} {STORY}", session=str(i))
        harness.wait_until("figures", lambda: server.metrics()["weft_sessions"] > 0)
        assert server.metrics()["weft_session_blocks"] <= n_blocks // 2
        n = 16 * n_blocks - 200
        answer = server.complete(prompt=[7] * 100, max_tokens=n, ignore_eos=True)
        assert answer["usage"]["completion_tokens"] == n
        harness.wait_until("figures", lambda: server.metrics()["weft_sessions_evicted_total"] > 0)
        assert server.metrics()["weft_num_preemptions_total"] == 0


SAID = [5 + i * 7 % 90 for i in range(300)]  # of any model's vocabulary


def save_in(directory, model=harness.FABLE):
    """A first server answers, saves, and answers the next turn."""
    with serving("--session-dir", directory, model=model) as server:
        first = say(server, SAID, return_token_ids=True)
        reply = file_call(server, "save", "a talk.session")
        assert reply.status == 200, reply.text
        assert reply.json["n_written"] == os.path.getsize(os.path.join(directory, "a talk.session"))
        prompt = SAID + first["choices"][0]["token_ids"] + [9, 8, 7]
        return prompt, reply.json["n_saved"], said(say(server, prompt))


def test_another_server_goes_on_where_one_was_saved():
    """To the bit, and with what was saved found; where layers have windows and where they have none."""
    models = [harness.FABLE, os.path.join(DATA, "zoo/mistral_swa16")] + (
        [] if harness.SANITIZED else [os.path.join(DATA, "zoo/deepseek_v3")])

    def check(model):
        with folder() as directory:
            prompt, n_saved, want = save_in(directory, model)
            with serving("--session-dir", directory, model=model) as server:
                reply = file_call(server, "restore", "a talk.session")
                assert reply.status == 200 and reply.json["n_restored"] == n_saved, reply.text
                assert sessions(server)["talk"]["n_tokens"] == n_saved
                answer = say(server, prompt)
                assert n_cached(answer) >= n_saved, (n_cached(answer), n_saved)
                assert said(answer) == want
            with serving(model=model) as server:
                assert said(say(server, prompt)) == want
    harness.for_each(models, check)


def test_files_that_are_none_are_refused_by_name():
    with folder() as directory:
        save_in(directory)
        path = os.path.join(directory, "a talk.session")
        with open(path, "rb") as f:
            good = f.read()
        bad = {"short": good[:-1], "long": good + b"x", "empty": b"", "text": b"hello" * 200,
               "flipped": good[:5000] + bytes([good[5000] ^ 4]) + good[5001:],
               "last": good[:-1] + bytes([good[-1] ^ 1])}
        for name, content in bad.items():
            with open(os.path.join(directory, name), "wb") as f:
                f.write(content)
        with serving("--session-dir", directory, "--session-dir-size", str(len(good) * 4)) as server:
            for name in bad:
                refused(file_call(server, "restore", name), 409, f"'{name}'")
            refused(file_call(server, "restore", "nothing"), 404, "'nothing'")
            for name in ["", "../x", "a/b", ".hidden", "x" * 129, 7]:
                refused(file_call(server, "restore", name), 400, "filename")
                refused(file_call(server, "save", name), 400, "filename")
            refused(file_call(server, "save", "x"), 404, "no such session")
            say(server)
            refused(file_call(server, "save", "x"), 507, "at most")
            assert file_call(server, "restore", "a talk.session").status == 200
        with serving("--session-dir", directory, model=os.path.join(DATA, "fable-draft-1m")) as server:
            refused(file_call(server, "restore", "a talk.session"), 409, "'a talk.session' is a session of the model")
        with serving("--session-dir", directory, "--kv-dtype", "f32") as server:
            refused(file_call(server, "restore", "a talk.session"), 409, "'a talk.session' was computed with other")
        with serving() as server:
            say(server)
            refused(file_call(server, "save", "x"), 400, "--session-dir")


def test_llama_servers_slots_are_sessions():
    """With its names throughout, its flag too."""
    body = {"prompt": STORY, "n_predict": 20, "temperature": 0, "cache_prompt": True, "return_tokens": True}

    def slot(server, idx, action, **fields):
        return server.post(f"/slots/{idx}?action={action}", fields)

    with folder() as directory:
        with serving("--slot-save-path", directory) as server:
            first = server.post("/completion", {**body, "id_slot": 3}).json
            assert list(sessions(server)) == ["slot-3"]
            saved = slot(server, 3, "save", filename="a.bin").json
            size = os.path.getsize(os.path.join(directory, "a.bin"))
            assert saved.pop("timings")["save_ms"] >= 0
            n = saved["n_saved"]
            assert n > 0 and saved == {"id_slot": 3, "filename": "a.bin", "n_saved": n, "n_written": size}, saved
            assert slot(server, 3, "erase").json == {"id_slot": 3, "n_erased": n}
            assert slot(server, 3, "erase").json == {"id_slot": 3, "n_erased": 0} and not sessions(server)
            refused(slot(server, 3, "save", filename="a.bin"), 404, "no such session")
            refused(slot(server, 3, "save", filename="../a.bin"), 400, "'filename' must be a name")
            refused(slot(server, 3, "move", filename="a.bin"), 400, "'action' must be save, restore or erase")
            refused(server.post("/slots/3", {"filename": "a.bin"}), 400, "'action' must be")
            for wrong in ("x", "-1", "2147483648", "3/4", "99999999999999999999"):
                refused(slot(server, wrong, "erase"), 404, "there is nothing at")
            refused(server.get("/slots/3?action=save"), 405, "/slots/ID takes POST")
            refused(server.post("/completion", {**body, "id_slot": "3"}), 400, "id_slot")
        with serving("--session-dir", directory) as server:
            server.post("/completion", {**body, "id_slot": -1})
            assert not sessions(server)
            assert server.post("/reset_prefix_cache", {}).status == 200
            restored = slot(server, 0, "restore", filename="a.bin").json
            assert restored.pop("timings")["restore_ms"] >= 0
            assert restored == {"id_slot": 0, "filename": "a.bin", "n_restored": n, "n_read": size}, restored
            prompt = server.post("/tokenize", {"content": STORY, "add_special": True}).json["tokens"]
            goes_on = server.post("/completion", {**body, "prompt": prompt + first["tokens"] + [9, 8], "id_slot": 0}).json
            assert goes_on["tokens_cached"] >= n


def test_a_folder_that_keeps_nothing_ends_the_start():
    for path in ("/nowhere", "/dev/null"):
        end = subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "serve", harness.FABLE, "--port", "0", "--rpc-port", "0",
                              "--session-dir", path], capture_output=True, text=True, timeout=harness.LIMIT_S)
        assert end.returncode == 1 and f"--session-dir: cannot open the folder {path}" in end.stderr, (path, end)


def test_keys_have_sessions_and_files_of_their_own():
    with folder() as directory:
        keys = os.path.join(directory, "keys")
        with open(keys, "w", encoding="utf-8") as f:
            f.write("key-a name=a admin\nkey-b name=b\n")
        with Server("--session-dir", directory, "--api-key-file", keys, check_idle=False) as server:
            a, b = ({"Authorization": f"Bearer key-{name}"} for name in "ab")
            for who in (a, b):
                reply = server.post("/v1/completions", {"prompt": STORY, "max_tokens": 4, "session_id": "talk"}, who)
                assert reply.status == 200, reply.text
            assert server.post(path_of("talk", "/save"), {"filename": "f"}, a).status == 200
            refused(server.post(path_of("talk", "/restore"), {"filename": "f"}, b), 409, "another API key")
            refused(server.post(path_of("talk", "/save"), {"filename": "f"}, b), 409, "another API key")
            assert server.post(path_of("talk", "/restore"), {"filename": "f"}, a).status == 200
            assert server.request("DELETE", path_of("talk"), headers=b).status == 200
            assert len(server.get("/v1/sessions", a).json["data"]) == 1
            assert server.get("/v1/sessions", b).json["data"] == []
            assert server.get("/v1/sessions").status == 401


def test_whatever_dies_no_half_file_stays():
    """Saves and restores while workers and schedulers are killed: each is done, or says 503; every file that has its
    name is whole, and streams beside them yield what they would have."""
    rng = random.Random(18)
    with folder() as directory, serving("--session-dir", directory) as server:
        want = said(say(server))
        stop, faults, done = threading.Event(), [], {"save": 0, "restore": 0}

        def keep_asking(action):
            while not stop.is_set():
                with contextlib.suppress(ConnectionError):
                    say(server, max_tokens=1)
                    reply = file_call(server, action, "talk")
                    done[action] += reply.status == 200
                    if reply.status not in (200, 404, 503):
                        faults.append((action, reply.status, reply.text))

        threads = [threading.Thread(target=keep_asking, args=(action,)) for action in done]
        for thread in threads:
            thread.start()
        n_kills = 3 if harness.SANITIZED else 6
        for i in range(n_kills):
            time.sleep(rng.uniform(0.05, 0.3))
            server.kill("worker" if i % 2 == 0 else "scheduler", how=signal.SIGKILL)
            harness.wait_until("the server to be back", lambda: server.get("/health").status == 200)
            assert said(say(server, session="beside")) == want
        harness.wait_until("saves and restores", lambda: all(done.values()) or faults)
        stop.set()
        for thread in threads:
            thread.join()
        assert not faults, faults
        say(server)
        assert file_call(server, "save", "last").status == 200
        assert sorted(os.listdir(directory)) == ["last", "talk"]
        for name in ("last", "talk"):
            assert file_call(server, "restore", name).status == 200
        assert said(say(server)) == want
        print(f"    {done['save']} saves and {done['restore']} restores around {n_kills} kills")


if __name__ == "__main__":
    harness.main()
