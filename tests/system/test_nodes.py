"""Two nodes behind HAProxy, with the configuration of deploy/haproxy, each a network namespace of its own: one of them is
lost under load, by a kill of all that it runs or with its network, and comes back."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import harness
import test_haproxy as balancing
from harness import Server

CLIENTS = 8
LONG = {"prompt": "Once upon a time", "max_tokens": 400, "temperature": 0, "ignore_eos": True}
SHORT = {"prompt": "It was late", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
NET = "10.213.78"
INSIDE = "WEFT_TEST_INSIDE"  # a namespace that is ours


def begin():
    """Goes on in a network namespace of its own, in which others can be made; where there are none, on this host."""
    if os.environ.get(INSIDE) or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return
    for more in ([], ["--user", "--map-root-user"]):
        new = ["unshare", "--net", *more]
        if subprocess.run([*new, "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode == 0:
            os.environ[INSIDE] = "1"
            os.execvp("unshare", [*new, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv])


class Node(Server):
    """A server in a namespace that is linked with ours; or on this host, at an address of its own."""

    def __init__(self, idx):
        self.idx, self.holder, self.wrap_net = idx, None, ()
        self.host = f"{NET}.{4 * idx + 2}" if os.environ.get(INSIDE) else f"127.0.0.{idx + 2}"
        if os.environ.get(INSIDE):
            self._link()
        super().__init__("--host", self.host, "--no-rpc", wrap=self.wrap_net, check_idle=False)

    def _link(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"
        self.wrap_net = ("nsenter", "--target", str(self.holder.pid), "--net", "--")
        ours, theirs = f"node{self.idx}", "eth0"
        ip = ["ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", str(self.holder.pid)]
        subprocess.run(ip, check=True)
        subprocess.run(["ip", "address", "add", f"{NET}.{4 * self.idx + 1}/30", "dev", ours], check=True)
        subprocess.run(["ip", "link", "set", ours, "up"], check=True)
        subprocess.run([*self.wrap_net, "ip", "address", "add", self.host + "/30", "dev", theirs], check=True)
        subprocess.run([*self.wrap_net, "ip", "link", "set", theirs, "up"], check=True)

    def network(self, state):
        subprocess.run(["ip", "link", "set", f"node{self.idx}", state], check=True)

    def start_again(self):
        """At the port that it had."""
        self.args = (*self.args, "--port", str(self.port))
        self.port, self.lines = None, []
        self.__enter__()

    def connect(self, timeout=harness.LIMIT_S):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def close(self):
        if self.holder:
            subprocess.run(["ip", "link", "delete", f"node{self.idx}"], check=True)
            self.holder.stdin.close()
            self.holder.stdout.close()
            self.holder.wait()

    def n_requests(self):
        return sum(v for k, v in self.metrics().items() if k.startswith("weft_request_success_total"))


@contextlib.contextmanager
def two_nodes():
    if not os.environ.get(INSIDE):
        print("    no network namespaces for this user: two addresses of this host are the nodes", flush=True)
    with contextlib.ExitStack() as stack:
        nodes = []
        for i in range(2):
            nodes.append(Node(i))
            stack.callback(nodes[i].close)
        for node in nodes:
            stack.enter_context(node)
        yield nodes


class Clients:
    """Requests until finish(): short whole answers, short and long streams. A request that got nothing of an answer must
    get all of it. A stream that has begun may break off, and has the right text so far; an answer that was being written
    may be 502, HAProxy's clear error for it."""

    def __init__(self, port, texts):
        self.port, self.texts, self.is_over = port, texts, False
        self.lock, self.n_done, self.n_cut, self.n_bad_gateway, self.faults = threading.Lock(), 0, 0, 0, []
        self.n_of = [0] * CLIENTS  # requests of each that have ended
        self.calls = [harness.Call(lambda i=i: self._run(i)) for i in range(CLIENTS)]

    def _run(self, i):
        kind = i % 3
        while not self.is_over:
            body = LONG if kind == 2 else SHORT
            try:
                is_cut = self._ask({**body, "stream": kind > 0}, self.texts[body["prompt"]])
                with self.lock:
                    self.n_done, self.n_cut = self.n_done + 1, self.n_cut + bool(is_cut)
                    self.n_bad_gateway += is_cut is None
            except Exception as why:  # noqa: BLE001 - counted
                with self.lock:
                    self.faults.append(repr(why))
            self.n_of[i] += 1

    def _ask(self, body, text):
        conn = balancing.connect(self.port)
        got, has_begun, is_done = "", False, False
        try:
            conn.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            reply = conn.getresponse()
            if not body["stream"]:
                whole = reply.read()
                if reply.status == 502:
                    return None  # its node was lost while it wrote the answer
                assert reply.status == 200, (reply.status, whole)
                assert json.loads(whole)["choices"][0]["text"] == text
                return False
            assert reply.status == 200, (reply.status, reply.read())
            has_begun = True
            for line in reply:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    got += "".join(c["text"] for c in event.get("choices", []))
                is_done = is_done or line.startswith(b"data: [DONE]")
        except (OSError, http.client.HTTPException, ValueError) as why:
            if not has_begun:
                raise AssertionError(f"refused: {why!r}") from why
        finally:
            conn.close()
        assert text.startswith(got), "other tokens"
        assert not is_done or got == text
        return not is_done

    def wait(self, n_more):
        until = self.n_done + n_more
        harness.wait_until(f"{n_more} requests", lambda: self.n_done >= until)

    def wait_for_each(self):
        """Until all requests of this moment have ended, one way or another."""
        before = list(self.n_of)
        harness.wait_until("each client to go on", lambda: all(n > b for n, b in zip(self.n_of, before, strict=True)))

    def finish(self):
        self.is_over = True
        for call in self.calls:
            call.result()
        assert not self.faults, (len(self.faults), self.faults[:5])
        # What was under way at the moment, and no more.
        assert self.n_cut + self.n_bad_gateway <= CLIENTS, (self.n_cut, self.n_bad_gateway)


def both_work_again(nodes, clients):
    """As many requests to each, but for the few that a long stream makes of difference."""
    def is_even():
        before = [node.n_requests() for node in nodes]
        clients.wait(100)
        a, b = (node.n_requests() - n for node, n in zip(nodes, before))
        return min(a, b) > 0 and max(a, b) <= 2 * min(a, b)
    harness.wait_until("both nodes to get requests again", is_even)


def lose_and_bring_back(lose, bring_back):
    lines = []
    with two_nodes() as nodes, balancing.balanced(*nodes, lines) as port:
        texts = {body["prompt"]: nodes[0].complete(**body)["choices"][0]["text"] for body in (LONG, SHORT)}
        clients = Clients(port, texts)
        clients.wait(60)
        lose(nodes[1])
        # Who comes back sooner gets requests while it loads.
        harness.wait_until("HAProxy to notice", lambda: any("Server servers/b is DOWN" in line for line in lines))
        clients.wait(60)
        clients.wait_for_each()  # what the lost node had breaks off, or is asked of the other one
        bring_back(nodes[1])
        both_work_again(nodes, clients)
        clients.finish()
        print(f"    {clients.n_done} requests, {clients.n_cut} streams broke off, {clients.n_bad_gateway} answers did, none "
              "was refused", flush=True)


def test_a_node_that_is_killed_and_comes_back_refuses_nobody():
    def kill(node):
        os.killpg(node.proc.pid, signal.SIGKILL)
        node.proc.wait()
    lose_and_bring_back(kill, Node.start_again)


def test_a_node_without_network_is_given_up_by_the_streams_that_it_had():
    if not os.environ.get(INSIDE):
        raise harness.Skip("a network can only be taken from a namespace")
    lose_and_bring_back(lambda node: node.network("down"), lambda node: node.network("up"))


def test_what_is_sent_to_a_node_without_network_is_answered_by_the_other():
    """On a connection that stood already: nobody acknowledges the request, so that no keepalive probe is ever sent."""
    if not os.environ.get(INSIDE):
        raise harness.Skip("a network can only be taken from a namespace")

    def ask(conn):
        conn.request("POST", "/v1/completions", json.dumps(SHORT), {"Content-Type": "application/json"})
        reply = conn.getresponse()
        text = reply.read()
        assert reply.status == 200, (reply.status, text)
        return json.loads(text)["choices"][0]["text"]

    with two_nodes() as nodes, balancing.balanced(*nodes) as port:
        conns = [balancing.connect(port) for _ in range(4)]
        texts = [ask(conn) for conn in conns]
        assert all(node.n_requests() for node in nodes)
        nodes[1].network("down")
        again = [harness.Call(lambda conn=conn: ask(conn)) for conn in conns]
        assert [call.result() for call in again] == texts
        for conn in conns:
            conn.close()


if __name__ == "__main__":
    begin()
    harness.main()
