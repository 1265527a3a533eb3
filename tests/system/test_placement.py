"""Workers on their CPUs and near their memory: on this machine's halves, and on two nodes that are faked where it has
one."""

import os
import platform
import re
import signal
import subprocess
import sys
import tempfile

import harness
from harness import Server

WEFT = os.path.join(harness.BIN_DIR, "weft")
NOWHERE = 63  # a node that no machine has
WITHOUT_NUMA = """
import ctypes, os, struct, sys
refused = (237, 238, 239, 256, 279)  # mbind, set_mempolicy, get_mempolicy, migrate_pages, move_pages of x86-64
n = len(refused)
code = struct.pack("HBBI", 0x20, 0, 0, 0)  # the call's number; if it is one of them, EPERM
code += b"".join(struct.pack("HBBI", 0x15, n - i, 0, number) for i, number in enumerate(refused))
code += struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000) + struct.pack("HBBI", 0x06, 0, 0, 0x00050001)
program = struct.pack("HxxxxxxP", n + 3, ctypes.addressof(kept := ctypes.create_string_buffer(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0):
    sys.exit("no filter: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"""


def halves():
    """This process's CPUs in two sets."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise harness.Skip("there is one CPU")
    return set(cpus[:len(cpus) // 2]), set(cpus[len(cpus) // 2:])


def text_of(cpus):
    return ",".join(map(str, sorted(cpus)))


def fake(first, second, memory=""):
    return {"WEFT_TEST_NUMA": f"{text_of(first)}/{text_of(second)}{memory}"}


def parsed(cpus):
    found = set()
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def affinities(pid):
    """{thread: its CPUs}; a thread that has just ended is left out."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as f:
                found[int(task)] = parsed(re.search(r"Cpus_allowed_list:\s*(\S+)", f.read()).group(1))
        except OSError:
            continue
    return found


def check_affinities(server, first, second):
    """One worker's threads run on `first`, the other's on `second`; returns their pids in that order."""
    harness.wait_until("both workers to serve", lambda: server.metrics().get('weft_workers{state="serving"}') == 2)
    wanted = {frozenset(first), frozenset(second)}
    by_cpus = harness.wait_until("a worker on each", lambda: (
        now := {frozenset(affinities(pid).get(pid, ())): pid for pid in server.workers()}).keys() == wanted and now)
    for cpus, pid in by_cpus.items():
        harness.wait_until("its threads", lambda p=pid: len(affinities(p)) > 1)  # one that is replaced has one at first
        threads = affinities(pid)
        assert all(theirs <= cpus for theirs in threads.values()), (cpus, threads)
    return [by_cpus[frozenset(first)], by_cpus[frozenset(second)]]


def weights_file(pid):
    """The inode of the memory file that a worker maps its weights from."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        inodes = {line.split()[4] for line in f if "memfd:weft-weights" in line}
    assert len(inodes) == 1, inodes
    return inodes.pop()


def copies_counted(pid):
    """Of the weights, when a worker looks whether all fits into memory."""
    with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
        return re.search(r"--weights-copies[\0=](\d+)", f.read() + "--weights-copies=1").group(1)


def policies(pid):
    """[(policy, file or "", bytes)] of a process's mappings. Neighbours of one policy may be one mapping."""
    path = f"/proc/{pid}/numa_maps"
    if not os.path.exists(path):
        raise harness.Skip("this kernel has no numa_maps")
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        ends = dict(line.split()[0].split("-") for line in f)
    found = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            begin, policy, rest = re.match(r"(\S+) (\S+(?: \(many\)\S*)?)(.*)", line).groups()
            file = re.search(r"file=(\S+)", rest)
            end = ends.get(begin.lstrip("0"), ends.get(begin, begin))
            found.append((policy, file.group(1) if file else "", int(end, 16) - int(begin, 16)))
    return found


def remote_pages(server):
    """{worker: pages} of those that have counted."""
    return {int(re.search(r'group="(\d+)"', name).group(1)): value
            for name, value in server.metrics().items() if name.startswith("weft_numa_remote_pages{")}


def told(server, text, n):
    """The lines of the log with this text; n of them come."""
    harness.wait_until(f"{n} lines: {text}", lambda: sum(text in line for line in server.lines) >= n)
    return [line for line in server.lines if text in line]


def test_there_is_a_worker_per_node_on_its_cpus_with_weights_of_its_own():
    first, second = halves()
    with Server(env=fake(first, second)) as server:
        pids = check_affinities(server, first, second)
        assert weights_file(pids[0]) != weights_file(pids[1])
        assert [copies_counted(pid) for pid in pids] == ["2", "2"]  # they pack at the same time
        replies = harness.in_threads([lambda: server.complete(prompt="It was late", max_tokens=20, temperature=0)] * 4)
        assert len({r["choices"][0]["text"] for r in replies}) == 1
        harness.wait_until("both to have counted", lambda: len(remote_pages(server)) == 2)
        assert set(remote_pages(server).values()) == {0}, remote_pages(server)
        os.kill(pids[1], signal.SIGKILL)
        harness.wait_until("it to be replaced", lambda: len(server.workers()) == 2 and pids[1] not in server.workers())
        assert copies_counted(check_affinities(server, first, second)[1]) == "1"


def test_weights_cache_and_scratch_prefer_their_node():
    first, second = halves()
    with Server("--kv-memory", "48MiB", env=fake(first, second)) as server:
        for pid in check_affinities(server, first, second):
            chosen = [(file, n) for policy, file, n in policies(pid) if policy.startswith("prefer")]
            assert any("memfd:weft-weights" in file for file, _ in chosen), chosen
            others = sum(n for file, n in chosen if not file)
            assert others > 50 << 20, chosen  # cache, activations, sequences, step


def test_on_one_node_lists_place_workers_and_nothing_else_changes():
    first, second = halves()
    with Server("--workers", "2", "--cpus", f"{text_of(second)}/{text_of(first)}",
                env={"WEFT_TEST_NUMA": text_of(first | second)}) as server:
        pids = check_affinities(server, first, second)
        assert weights_file(pids[0]) == weights_file(pids[1])
        harness.wait_until("both to have told", lambda: len(remote_pages(server)) == 2)
        assert set(remote_pages(server).values()) == {0}
        assert {policy for pid in pids for policy, _, _ in policies(pid)} == {"default"}


def test_pages_elsewhere_are_counted():
    """The second node's memory is not there, so all that its worker has lies elsewhere."""
    first, second = halves()
    with Server(env=fake(first, second, f"@{NOWHERE}")) as server:
        check_affinities(server, first, second)
        harness.wait_until("the second worker's pages to be counted",
                           lambda: remote_pages(server).get(1, 0) > 0 and remote_pages(server).get(0) == 0)
        assert len(told(server, "memory lies on the NUMA node that first uses it", 1)) == 1, server.lines


def test_without_the_system_calls_workers_go_on():
    if platform.machine() != "x86_64":
        raise harness.Skip("the filter is made for x86-64")
    first, second = halves()
    with Server(env=fake(first, second), wrap=(sys.executable, "-c", WITHOUT_NUMA)) as server:
        check_affinities(server, first, second)
        server.complete(prompt="It was late", max_tokens=5)
        lines = told(server, "Operation not permitted", 4)
        for what in "memory lies on the NUMA node", "pages on other NUMA nodes are not counted":
            assert sum(what in line for line in lines) == 2, lines  # each worker's
        assert len(lines) == 4 and remote_pages(server) == {}, (lines, remote_pages(server))


def test_a_packed_file_is_shared_by_nodes_and_the_server_says_so():
    first, second = halves()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fable.weft")
        subprocess.run([WEFT, "pack", harness.FABLE, path], check=True, capture_output=True)
        with Server(model=path, env=fake(first, second)) as server:
            check_affinities(server, first, second)
            assert len(told(server, "2 NUMA nodes share the packed file", 1)) == 1, server.lines


def test_more_threads_than_cpus_are_warned_of_once():
    n_cpus = len(os.sched_getaffinity(0))
    with Server("--threads", str(n_cpus + 1)) as server:
        lines = told(server, "take turns", 1)
        assert len(lines) == 1 and f"{n_cpus + 1} threads in 1 worker have " in lines[0], server.lines
    with Server() as server:
        assert not any("take turns" in line for line in server.lines), server.lines


def test_lists_that_make_no_sense_are_refused():
    for args, said in (
        (["--workers", "2", "--cpus", "0"], "--cpus has 1 list for 2 workers"),
        (["--cpus", "0-"], '--cpus is lists of CPUs such as 0-3/4-7, one per worker; "0-" is none'),
        (["--cpus", "1023"], "--cpus names CPU 1023, which this process may not use"),
    ):
        done = subprocess.run([WEFT, "serve", harness.FABLE, *args], capture_output=True, text=True, check=False,
                              timeout=harness.LIMIT_S)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, (args, done)


if __name__ == "__main__":
    harness.main()
