"""No head-of-line blocking, shown by the order of tokens and by nothing else.

The worker stands still while the second request comes in, so that much of the first ones is still to come on any
machine. Tokens are noted in the order in which this process reads them; a thread that a busy machine keeps from
reading may spoil that once, and then it is tried again. A server that made requests wait would spoil it every time.
"""

import json

import harness
from harness import Server, Stream, Void


class Journal:
    """The streams that had a token, in order, whichever thread read it, and those that ended."""

    def __init__(self, server):
        self.server, self.names, self.chunks = server, {}, []

    def stream(self, name, **body):
        """A stream whose tokens are told as NAME, and its end as "end of NAME"."""
        stream = Stream(self.server, {"ignore_eos": True, "logprobs": 0, **body},
                        lambda stream, chunk: self.chunks.append((stream, chunk)))
        self.names[stream] = name
        return stream

    def read(self):
        """The entries so far."""
        told, rest = [], {}
        for stream, chunk in list(self.chunks):
            *lines, rest[stream] = (rest.get(stream, b"") + chunk).split(b"\n")
            for line in lines:
                if line == b"data: [DONE]":
                    told.append("end of " + self.names[stream])
                elif line.startswith(b"data: "):
                    told += [self.names[stream]] * sum(
                        len(choice["logprobs"]["tokens"]) for choice in json.loads(line[6:])["choices"] if choice["logprobs"])
        return told


def come_second(server, n_first, **body):
    """Streams that are part of the way on when the worker is stopped and a last one comes in; the journal from there
    on, when all have ended."""
    server.wait_idle()
    journal, still = Journal(server), server.about_to_stop()
    n_before = server.metric("weft_generation_tokens_total")
    first = [journal.stream(f"first {i}", prompt="A long story about", max_tokens=1000, temperature=0)
             for i in range(n_first)]
    harness.wait_until("all of them to begin", lambda: all(s.has_begun for s in first))
    harness.wait_until("their tokens", lambda: server.metric("weft_generation_tokens_total") - n_before >= 4 * n_first)
    with still:
        still.settle()
        n_tokens = server.metric("weft_generation_tokens_total") - n_before
        if server.metric("weft_num_requests_running") < n_first or n_tokens > 500 * n_first:
            raise Void(f"they were too far: {n_tokens:.0f} tokens")
        still.wait_until("their clients to have read these", lambda: len(journal.read()) == n_tokens)
        last = journal.stream("last", **body)
        still.wait_until("the last one to come in", lambda: harness.load(server.metrics()) > n_first)
    for stream in (*first, last):
        stream.events()
    return journal.read()[int(n_tokens):]


def test_a_late_request_begins_while_earlier_ones_decode():
    def run():
        names = come_second(server, 4, prompt="Late", max_tokens=4)
        late = names.index("end of last")
        if any(names.index(f"end of first {i}") < late for i in range(4)):
            raise Void("it had to wait for them")
        if not all(f"first {i}" in names[names.index("last"):] for i in range(4)):
            raise Void("the others stood still")
    with Server() as server:
        harness.attempt(run)


def test_running_streams_go_on_while_a_long_prompt_is_read():
    def run():
        names = come_second(server, 1, prompt=[300 + i % 700 for i in range(900)], max_tokens=1)
        between = names[:names.index("last")].count("first 0")
        print(f"    {between} tokens of the running stream while 900 were read, 32 in a step", flush=True)
        if between < 900 // 32:
            raise Void(f"only {between} tokens of the running stream while the long prompt was read")
    with Server("--max-num-batched-tokens", "32") as server:
        harness.attempt(run)


if __name__ == "__main__":
    harness.main()
