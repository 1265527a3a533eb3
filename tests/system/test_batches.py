"""/v1/files and /v1/batches: OpenAI's flow, whose files they are, what is refused; and each line answered exactly once,
with the answer of a plain request, whatever is killed and however full the disk is."""

import contextlib
import http.client
import json
import os
import resource
import tempfile
import time

import harness
from harness import Server
from test_replace import ended as end_of_replaced
from test_replace import successor

EMBEDDER = os.path.join(harness.SOURCE_DIR, "tests", "data", "embed", "qwen3-last")
ENDPOINT = "/v1/completions"
N_LINES = 60


def line(i, **body):
    return {"custom_id": f"line {i} \u00e9", "method": "POST", "url": ENDPOINT,
            "body": {"prompt": f"Once upon a time {i}", "max_tokens": 12, "seed": i, "temperature": 0.9, **body}}


def text_of(lines):
    return "".join(json.dumps(one) + "\n" for one in lines).encode()


def upload(server, data, headers=None, purpose="batch", boundary="------------edge-7", name="in.jsonl"):
    form = (f"--{boundary}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{purpose}\r\n"
            f"--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n"
            "Content-Type: application/octet-stream\r\n\r\n").encode() + data + f"\r\n--{boundary}--\r\n".encode()
    return server.request("POST", "/v1/files", form,
                          {"Content-Type": f"multipart/form-data; boundary={boundary}", **(headers or {})})


def begin(server, lines, headers=None, **fields):
    data = lines if isinstance(lines, bytes) else text_of(lines)
    reply = upload(server, data, headers)
    assert reply.status == 200 and reply.json["bytes"] == len(data), reply.text
    reply = server.post("/v1/batches", {"input_file_id": reply.json["id"], "endpoint": ENDPOINT,
                                        "completion_window": "24h", **fields}, headers)
    assert reply.status == 200, reply.text
    return reply.json


def look(server, batch):
    """None while the router is being replaced."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        reply = server.get(f"/v1/batches/{batch['id']}")
        if reply.status == 200:
            return reply.json
        assert reply.status == 503, reply.text
    return None


def ended(server, batch, status="completed"):
    def is_over():
        now = look(server, batch)
        return now if now and f"{now['status']}_at" in now and now["status"] in (
            "completed", "failed", "expired", "cancelled") else None
    now = harness.wait_until("the batch to end", is_over)
    assert now["status"] == status, now
    assert now[f"{status}_at"] >= now["created_at"]
    return now


def content(server, file_id):
    if file_id is None:
        return []
    reply = server.get(f"/v1/files/{file_id}/content")
    assert reply.status == 200 and server.get(f"/v1/files/{file_id}").json["bytes"] == len(reply.body)
    return [json.loads(one) for one in reply.body.splitlines()]


def choices_of(body):
    return [(choice["text"], choice["finish_reason"]) for choice in body["choices"]]


def check_answers(server, batch, lines):
    """Each line has one answer, the one that its request has by itself."""
    output = content(server, batch["output_file_id"])
    by_id = {one["custom_id"]: one for one in output}
    assert len(by_id) == len(output) == len(lines) == batch["request_counts"]["completed"], batch
    assert len({one["id"] for one in output}) == len(output)
    for one in lines:
        answer = by_id[one["custom_id"]]
        assert answer["error"] is None and answer["response"]["status_code"] == 200, answer
    for one in lines[::max(1, len(lines) // 6)]:
        assert choices_of(by_id[one["custom_id"]]["response"]["body"]) == choices_of(server.complete(**one["body"])), one


def test_a_batch_is_made_answered_and_told_as_openai_does():
    lines = [line(i) for i in range(30)]
    bad = [line(100, temperature=-1), line(101, prompt="a " * 5000)]
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder) as server:
        batch = begin(server, lines + bad, metadata={"who": "a test"})
        assert batch["object"] == "batch" and batch["status"] in ("validating", "in_progress"), batch
        assert batch["output_file_id"] is None and batch["metadata"] == {"who": "a test"}
        batch = ended(server, batch)
        assert batch["request_counts"] == {"total": 32, "completed": 30, "failed": 2}, batch
        assert batch["expires_at"] - batch["created_at"] == 86400 and batch["errors"] is None
        check_answers(server, batch, lines)
        errors = content(server, batch["error_file_id"])
        assert sorted(one["custom_id"] for one in errors) == sorted(one["custom_id"] for one in bad)
        for one, sent in zip(sorted(errors, key=lambda e: e["custom_id"]), bad):
            plain = server.post(ENDPOINT, sent["body"])
            assert one["response"]["status_code"] == plain.status == 400 and one["error"] is None
            assert one["response"]["body"]["error"] == plain.json["error"]
        files = server.get("/v1/files").json["data"]
        assert {one["purpose"] for one in files} == {"batch", "batch_output"} and len(files) == 3
        assert server.metrics()['weft_batch_requests_total{status="completed"}'] == 30
        assert server.request("DELETE", f"/v1/files/{batch['input_file_id']}").json["deleted"] is True
        assert server.get(f"/v1/files/{batch['input_file_id']}").status == 404
        assert server.get(f"/v1/files/{batch['input_file_id']}/content").status == 404
        assert server.post(f"/v1/batches/{batch['id']}/cancel", {}).status == 409


def test_lines_of_more_prompts_than_run_at_once_have_their_answers():
    lines = [line(i, prompt=[f"Once {k}" for k in range(40 + 30 * (i % 2))], max_tokens=2) for i in range(6)]
    flags = ("--max-num-seqs", "4", "--max-queue", "66")
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder, *flags) as server:
        check_answers(server, ended(server, begin(server, lines)), lines)


def test_texts_become_vectors():
    url = "/v1/embeddings"
    lines = [{"custom_id": f"text {i}", "method": "POST", "url": url,
              "body": {"input": ["A loom " * (i + 1), "東京"], "encoding_format": ("float", "base64")[i % 2]}}
             for i in range(40)]
    lines[7]["body"]["input"] = []
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder, model=EMBEDDER) as server:
        batch = ended(server, begin(server, lines, endpoint=url))
        assert batch["request_counts"] == {"total": 40, "completed": 39, "failed": 1}, batch
        answers = content(server, batch["output_file_id"]) + content(server, batch["error_file_id"])
        by_id = {one["custom_id"]: one["response"] for one in answers}
        assert len(by_id) == len(answers) == len(lines)
        for one in lines:
            plain, got = server.post(url, one["body"]), by_id[one["custom_id"]]
            assert got["status_code"] == plain.status, (one, got)
            for part in ("data", "usage", "error"):
                assert got["body"].get(part) == plain.json.get(part), one


def test_a_server_that_replaces_another_goes_on_with_its_batches():
    harness.attempt(replace_in_between)


def replace_in_between():
    lines = [line(i, max_tokens=60, ignore_eos=True) for i in range(N_LINES)]
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder, "--max-num-seqs", "2",
                                                         check_idle=False) as old:
        batch = begin(old, lines)
        harness.wait_until("some answers", lambda: look(old, batch)["request_counts"]["completed"] >= 5)
        with successor(old, "--batch-store", folder) as new:
            end_of_replaced(old)
            batch = ended(new, batch)
            check_answers(new, batch, lines)
            n_new = new.metrics()['weft_batch_requests_total{status="completed"}']
            if n_new == 0:
                raise harness.Void("the old one had answered all")
            assert n_new <= N_LINES - 5, n_new


def test_answers_that_take_many_turns_to_write_are_whole():
    lines = [line(i, max_tokens=40, ignore_eos=True, n=16, logprobs=20) for i in range(3)]
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder) as server:
        batch = ended(server, begin(server, lines))
        output = content(server, batch["output_file_id"])
        assert server.get(f"/v1/files/{batch['output_file_id']}").json["bytes"] > 6 << 16, batch
        assert sorted(one["custom_id"] for one in output) == sorted(one["custom_id"] for one in lines)
        plain = server.complete(**lines[0]["body"])
        answer = next(one for one in output if one["custom_id"] == lines[0]["custom_id"])
        assert answer["response"]["body"]["choices"] == plain["choices"]


def test_others_go_first_while_a_large_file_is_checked():
    lines = [{**line(i, logit_bias=[0] * 200000), "method": "GET"} for i in range(12)]
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder) as server:
        batch = begin(server, lines)
        reply = upload(server, b"x")
        assert server.get(f"/v1/files/{reply.json['id']}/content").body == b"x"
        assert look(server, batch)["status"] == "validating"
        assert len(ended(server, batch, "failed")["errors"]["data"]) == 12


def test_lists_are_told_in_pages_and_to_their_owner_alone():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys, tempfile.TemporaryDirectory() as folder:
        keys.write("key-one name=one\nkey-two name=two\n")
        keys.flush()
        one, two = ({"Authorization": f"Bearer key-{name}"} for name in ("one", "two"))
        with Server("--batch-store", folder, "--api-key-file", keys.name) as server:
            assert server.get("/v1/files").status == 401
            made = [begin(server, [line(i)], one)["id"] for i in range(5)]
            seen, after = [], ""
            while True:
                page = server.get(f"/v1/batches?limit=2{after}", one).json
                seen += [batch["id"] for batch in page["data"]]
                assert page["first_id"] == page["data"][0]["id"] and page["last_id"] == page["data"][-1]["id"]
                if not page["has_more"]:
                    break
                after = f"&after={page['last_id']}"
            assert sorted(seen) == sorted(made) and len(seen) == 5
            assert server.get("/v1/batches", two).json["data"] == [] == server.get("/v1/files", two).json["data"]
            file_id = server.get("/v1/files", one).json["data"][0]["id"]
            for path in (f"/v1/batches/{made[0]}", f"/v1/files/{file_id}", f"/v1/files/{file_id}/content"):
                assert server.get(path, two).status == 404 and server.get(path, one).status == 200, path
            assert server.request("DELETE", f"/v1/files/{file_id}", headers=two).status == 404
            assert server.post(f"/v1/batches/{made[0]}/cancel", {}, two).status == 404
            assert server.post("/v1/batches", {"input_file_id": file_id, "endpoint": ENDPOINT,
                                               "completion_window": "24h"}, two).status == 404
            harness.wait_until("all to be over", lambda: all(
                batch["status"] == "completed" for batch in server.get("/v1/batches", one).json["data"]))


def test_what_is_not_the_stores_stays():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "files"))
        theirs = ["notes.jsonl", "film.part", "config.new"]
        for name in [*theirs, "file-0123456789abcdef.part", "file-0123456789abcdef.jsonl"]:
            with open(os.path.join(folder, "files", name), "w", encoding="utf-8") as file:
                file.write(name)
        with Server("--batch-store", folder) as server:
            harness.wait_until("the store", lambda: server.get("/v1/files").status == 200)
            assert sorted(os.listdir(os.path.join(folder, "files"))) == sorted(theirs)


def test_what_cannot_be_is_refused_with_a_sentence():
    with Server() as server:
        for path in ("/v1/files", "/v1/batches", "/v1/files/file-1"):
            reply = server.get(path)
            assert reply.status == 404 and "--batch-store" in reply.json["error"]["message"], reply.text
        assert "--batch-store" in upload(server, b"{}").json["error"]["message"]
    flags = ("--batch-file-size", "100KiB", "--batch-store-size", "250KiB")
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder, *flags) as server:
        assert upload(server, b"x" * 102401).status == 413
        assert upload(server, b"x" * (1 << 22)).status == 413
        assert upload(server, b"x", purpose="fine-tune").json["error"]["param"] == "purpose"
        assert upload(server, b"x", boundary="b" * 71).status == 400
        assert server.post("/v1/files", {"file": "x"}).status == 400
        torn = b"--e\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nabc"
        kind = {"Content-Type": "multipart/form-data; boundary=e"}
        assert server.request("POST", "/v1/files", torn, kind).status == 400
        assert server.request("PUT", "/v1/files", b"", kind).status == 405
        assert server.get("/v1/files/..%2f..%2flock").status == 404
        assert server.get("/v1/batches?limit=0").status == 400
        first = upload(server, b"x" * 100000)
        assert first.status == 200 and upload(server, b"x" * 100000).status == 200
        reply = upload(server, b"x" * 100000)
        assert reply.status == 503 and reply.json["error"]["code"] == "store_full", reply.text
        assert server.request("DELETE", f"/v1/files/{first.json['id']}").status == 200
        assert upload(server, b"x" * 100000).status == 200
        good = {"input_file_id": server.get("/v1/files").json["data"][0]["id"], "endpoint": ENDPOINT,
                "completion_window": "24h"}
        for change in ({"input_file_id": "file-0"}, {"endpoint": "/v1/models"}, {"completion_window": "soon"},
                       {"completion_window": "31d"}, {"metadata": {"a": 1}}, {"input_file_id": "../lock"}):
            reply = server.post("/v1/batches", {**good, **change})
            assert reply.status in (400, 404) and reply.json["error"]["message"], (change, reply.text)
        # A client that leaves in the middle leaves nothing.
        conn = server.connect()
        conn.putrequest("POST", "/v1/files")
        conn.putheader("Content-Type", kind["Content-Type"])
        conn.putheader("Content-Length", "90000")
        conn.endheaders(torn)
        conn.close()
        harness.wait_until("the part to be gone", lambda: not [
            name for name in os.listdir(os.path.join(folder, "files")) if name.endswith(".part")])


def test_lines_at_fault_end_a_batch_before_it_begins():
    lines = [line(0), {**line(1), "method": "GET"}, {**line(2), "url": "/v1/chat/completions"}, line(0),
             {**line(4), "custom_id": 5}, {**line(5), "body": []}, {**line(6), "body": {"stream": True}}]
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder) as server:
        batch = ended(server, begin(server, text_of(lines) + b"\n{\"custom_id\"\n"), "failed")
        faults = {(fault["line"], fault["code"]) for fault in batch["errors"]["data"]}
        assert faults == {(2, "invalid_method"), (3, "mismatched_endpoint"), (4, "duplicate_custom_id"),
                          (5, "missing_required_parameter"), (6, "missing_required_parameter"), (7, "invalid_request"),
                          (8, "invalid_json_line")}, faults
        assert batch["output_file_id"] is None and batch["request_counts"]["completed"] == 0
        batch = ended(server, begin(server, b"\n \n"), "failed")
        assert batch["errors"]["data"][0]["code"] == "empty_file", batch


def test_a_batch_can_be_cancelled_and_may_come_too_late():
    lines = [line(i, max_tokens=400, ignore_eos=True) for i in range(100)]
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder, "--max-num-seqs", "8") as server:
        batch = begin(server, lines)
        harness.wait_until("some to be answered", lambda: look(server, batch)["request_counts"]["completed"] > 0)
        reply = server.request("DELETE", f"/v1/files/{batch['input_file_id']}")
        assert reply.status == 409, reply.text
        assert server.post(f"/v1/batches/{batch['id']}/cancel", {}).json["status"] == "cancelling"
        batch = ended(server, batch, "cancelled")
        n = batch["request_counts"]["completed"]
        assert 0 < n < 100 and len(content(server, batch["output_file_id"])) == n, batch
        batch = ended(server, begin(server, lines, completion_window="1s"), "expired")
        output, errors = content(server, batch["output_file_id"]), content(server, batch["error_file_id"])
        assert sorted(one["custom_id"] for one in output + errors) == sorted(one["custom_id"] for one in lines)
        assert {one["error"]["code"] for one in errors} == {"batch_expired"} and errors[0]["response"] is None
        assert batch["request_counts"] == {"total": 100, "completed": len(output), "failed": len(errors)}


def kill_in_between(names, how_often):
    lines = [line(i, max_tokens=50, ignore_eos=True) for i in range(N_LINES)]
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder, "--max-num-seqs", "8") as server:
        batch = begin(server, lines)
        for k in range(how_often):
            least = N_LINES * (k + 1) // (how_often + 2)

            def is_so_far():
                now = look(server, batch)
                return now and now["request_counts"]["completed"] >= least
            harness.wait_until(f"{least} answers", is_so_far)
            server.kill(*names)
        batch = ended(server, batch)
        harness.wait_until("the server to be healthy again", lambda: server.get("/health").status == 200)
        check_answers(server, batch, lines)


def test_each_line_is_answered_once_when_a_worker_is_killed():
    kill_in_between(["worker"], 2)


def test_each_line_is_answered_once_when_the_scheduler_is_killed():
    kill_in_between(["scheduler"], 2)


def test_each_line_is_answered_once_when_the_router_is_killed():
    kill_in_between(["router"], 3)


def test_each_line_is_answered_once_when_all_are_killed():
    kill_in_between(["router", "scheduler", "worker"], 1)


def answer_file(folder, least_bytes=1):
    """The one that grows, of a batch that isn't over."""
    names = [os.path.join(folder, "files", name) for name in os.listdir(os.path.join(folder, "files"))]
    grown = [name for name in names if name.endswith(".jsonl") and not os.path.exists(name[:-1])
             and os.path.getsize(name) >= least_bytes]
    return grown[0] if grown else None


def test_a_server_goes_on_where_another_ended_even_in_the_middle_of_a_line():
    lines = [line(i, max_tokens=50, ignore_eos=True) for i in range(N_LINES)]
    with tempfile.TemporaryDirectory() as folder:
        with Server("--batch-store", folder, "--max-num-seqs", "4", check_idle=False) as server:
            batch = begin(server, lines)
            path = harness.wait_until("some answers", lambda: answer_file(folder, 3000))
        with open(path, "rb+") as f:
            whole = f.read()
            assert whole.endswith(b"\n") and 0 < whole.count(b"\n") < N_LINES
            f.truncate(len(whole) - 40)
        with Server("--batch-store", folder) as server:
            batch = ended(server, batch)
            check_answers(server, batch, lines)
            output = server.get(f"/v1/files/{batch['output_file_id']}/content").body
            kept = whole[:whole.rstrip(b"\n").rindex(b"\n") + 1]
            assert output.startswith(kept), "answers that were there were asked again"


def unfinish(folder, batch, **changes):
    """As if all had ended right before it was written that the batch is over."""
    path = os.path.join(folder, "batches", batch["id"] + ".json")
    with open(path) as f:
        kept = json.load(f)
    kept.update({"status": "in_progress", "output_file_id": None, "error_file_id": None, "finalizing_at": None,
                 f"{batch['status']}_at": None, **changes})
    with open(path, "w") as f:
        json.dump(kept, f)


def test_a_batch_that_was_cut_short_at_its_very_end_ends_once():
    lines = [line(i) for i in range(3)]
    slow = [line(i, max_tokens=400, ignore_eos=True) for i in range(100)]
    with tempfile.TemporaryDirectory() as folder:
        with Server("--batch-store", folder, "--max-num-seqs", "8") as server:
            done = ended(server, begin(server, lines))
            late = ended(server, begin(server, slow, completion_window="1s"), "expired")
            before = server.get("/v1/files").json["data"]
        assert late["request_counts"]["failed"] > 0, late
        unfinish(folder, done)
        unfinish(folder, late, status="finalizing", expired_at=late["expired_at"])
        with Server("--batch-store", folder) as server:
            check_answers(server, ended(server, done), lines)
            again = ended(server, late, "expired")
            assert again["request_counts"] == late["request_counts"]
            after = server.get("/v1/files").json["data"]
            assert sorted((one["id"], one["bytes"]) for one in after) == sorted(
                (one["id"], one["bytes"]) for one in before), after
            assert server.request("DELETE", f"/v1/files/{done['output_file_id']}").status == 200
            assert server.get(f"/v1/files/{done['output_file_id']}").status == 404


def test_a_full_disk_makes_a_batch_wait_and_nobody_else():
    lines = [line(i, max_tokens=20, ignore_eos=True) for i in range(N_LINES)]
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder) as server:
        pid = server.children()["router"]
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        data = text_of(lines)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (len(data) + 1000, before[1]))
        batch = begin(server, data)
        harness.wait_until("the log to say so", lambda: any("batches wait for room" in one for one in server.lines))
        reply = upload(server, b"x" * 200000)
        assert reply.status == 503 and reply.json["error"]["code"] == "store_full", reply.text
        assert server.complete(prompt="a", max_tokens=2)["choices"] and server.get("/health").status == 200
        now = look(server, batch)
        assert now["status"] == "in_progress" and now["request_counts"]["completed"] < N_LINES, now
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        batch = ended(server, batch)
        check_answers(server, batch, lines)
        assert server.children()["router"] == pid


def test_a_batch_that_waits_for_room_can_be_ended_and_so_can_its_server():
    lines = [line(i, max_tokens=30, logprobs=5, ignore_eos=True) for i in range(N_LINES)]
    flags = ("--batch-store-size", "64KiB", "--max-num-seqs", "8")
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder, *flags) as server:
        batch = begin(server, lines)
        harness.wait_until("answers to have no room",
                           lambda: any("batches wait for room" in one for one in server.lines))
        assert server.post(f"/v1/batches/{batch['id']}/cancel", {}).json["status"] == "cancelling"
        batch = ended(server, batch, "cancelled")
        n = batch["request_counts"]["completed"]
        assert n < N_LINES and len(content(server, batch["output_file_id"])) == n, batch
        for file in server.get("/v1/files").json["data"]:
            assert server.request("DELETE", f"/v1/files/{file['id']}").status == 200
        batch = ended(server, begin(server, lines, completion_window="3s"), "expired")
        answers = content(server, batch["output_file_id"]) + content(server, batch["error_file_id"])
        assert sorted(one["custom_id"] for one in answers) == sorted(one["custom_id"] for one in lines)
        for file in server.get("/v1/files").json["data"]:
            assert server.request("DELETE", f"/v1/files/{file['id']}").status == 200
        batch = begin(server, lines)

        def waits():
            before = look(server, batch)["request_counts"]
            time.sleep(0.3)
            return before["completed"] > 0 and look(server, batch)["request_counts"] == before
        harness.wait_until("it to wait again", waits)
    assert not any("gave up" in one for one in server.lines), server.lines[-9:]


def send_form(server, data):
    """A connection on which a form with `data` began, and what ends the form."""
    form = (b"--e\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
            b"--e\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n")
    end = b"\r\n--e--\r\n"
    conn = server.connect()
    conn.putrequest("POST", "/v1/files")
    conn.putheader("Content-Type", "multipart/form-data; boundary=e")
    conn.putheader("Content-Length", str(len(form) + len(data) + len(end)))
    conn.endheaders(form + data)
    return conn, end


def test_what_is_on_its_way_when_a_server_is_replaced_is_whole_or_refused():
    data = b"x" * (24 << 20)  # more than sockets keep
    with tempfile.TemporaryDirectory() as folder, Server("--batch-store", folder, check_idle=False) as old:
        file_id = upload(old, data).json["id"]
        download = old.connect()
        download.request("GET", f"/v1/files/{file_id}/content")
        reply = download.getresponse()
        uploads = [send_form(old, b"y" * n) for n in (10, 1 << 20)]
        harness.wait_until("the long one to be on the disk", lambda: [
            name for name in os.listdir(os.path.join(folder, "files")) if name.endswith(".part")])
        with Server("--port", str(old.port), "--rpc-port", str(old.rpc_port), "--replace",
                    "--batch-store", folder) as new:
            harness.wait_until("the store to be the new one's", lambda: new.get("/v1/files").status == 200)
            for conn, end in uploads:
                conn.send(end)
                late = conn.getresponse()
                assert late.status == 503 and late.headers["Retry-After"], late.read()
                assert json.loads(late.read())["error"]["code"] == "not_serving"
                conn.close()
            assert reply.read() == data
            download.close()
            assert old.proc.wait(harness.LIMIT_S) == 0
            names = {name.split(".")[0] for name in os.listdir(os.path.join(folder, "files"))}
            assert names == {file_id} == {one["id"] for one in new.get("/v1/files").json["data"]}, names


def test_one_process_has_a_store_and_old_files_go():
    with tempfile.TemporaryDirectory() as folder:
        with Server("--batch-store", folder) as first, Server("--batch-store", folder) as second:
            assert upload(first, b"x").status == 200
            reply = second.get("/v1/files")
            assert reply.status == 503 and reply.headers["Retry-After"], reply.text
            assert second.get("/health").status == 200
        with Server("--batch-store", folder, "--batch-ttl", "1") as server:
            assert len(server.get("/v1/files").json["data"]) == 1
            reply = upload(server, b"x")
            begin_s = time.monotonic()
            harness.wait_until("it to be gone", lambda: server.get(f"/v1/files/{reply.json['id']}").status == 404)
            assert time.monotonic() - begin_s < 60


if __name__ == "__main__":
    harness.main()
