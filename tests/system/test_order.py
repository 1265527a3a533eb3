"""No head-of-line blocking, shown by the order of events and by nothing else."""

import threading

import harness
from harness import Server


def test_a_late_request_begins_while_earlier_ones_decode():
    events, lock = [], threading.Lock()

    def note(name):
        with lock:
            events.append(name)

    with Server() as server:
        started = threading.Barrier(5)

        def early(i):
            first = [True]

            def on_event(_event):
                note(f"early {i}")
                if first[0]:
                    first[0] = False
                    started.wait()
            server.stream("/v1/completions", {"prompt": "A long story about", "max_tokens": 600,
                                              "ignore_eos": True, "temperature": 0}, on_event)
            note(f"end {i}")

        threads = [threading.Thread(target=early, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        started.wait()  # all four decode
        server.stream("/v1/completions", {"prompt": "Late", "max_tokens": 4, "ignore_eos": True},
                      lambda _e: note("late"))
        note("late end")
        for t in threads:
            t.join()
    at = events.index("late")
    assert all(events.index(f"end {i}") > events.index("late end") for i in range(4)), "it had to wait for them"
    after = [sum(1 for e in events[at:] if e == f"early {i}") for i in range(4)]
    assert all(n > 0 for n in after), f"the others stood still: {after}"


def test_running_streams_go_on_while_a_long_prompt_is_read():
    with Server("--max-num-batched-tokens", "32") as server:
        order, lock = [], threading.Lock()
        begun = threading.Event()

        def on_event(_event):
            with lock:
                order.append("stream")
            begun.set()
        thread = threading.Thread(target=lambda: server.stream(
            "/v1/completions", {"prompt": "Slowly", "max_tokens": 700, "ignore_eos": True}, on_event))
        thread.start()
        begun.wait()
        long_ids = [300 + i % 1000 for i in range(900)]
        with lock:
            order.append("sent")
        server.stream("/v1/completions", {"prompt": long_ids, "max_tokens": 1, "ignore_eos": True},
                      lambda _e: order.append("long"))
        thread.join()
    between = order[order.index("sent"): order.index("long")].count("stream")
    assert between > 5, f"only {between} events of the running stream while the long prompt was read"


if __name__ == "__main__":
    harness.main()
