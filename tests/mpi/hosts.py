"""Hosts that are network namespaces with a link between them, and mpirun over them; where this machine makes no
namespaces, two ranks on one host that speak TCP all the same."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))

import harness  # noqa: E402
from harness import Skip  # noqa: E402

ADDRESSES = ("10.213.77.1", "10.213.77.2")
PROGRAMS = ("unshare", "nsenter", "ip")
OUTPUT_LIMIT_S = 60 * harness.SLOW


def works(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def begin():
    """Before any test: who may make namespaces only as a user of its own begins again as one."""
    if not shutil.which("mpirun"):
        print("    SKIPPED: there is no mpirun (make deps-mpi)")
        sys.exit(77)
    new = ("unshare", "--net", "--uts")
    if all(map(shutil.which, PROGRAMS)) and not works(*new, "true") and works(*new, "--user", "--map-root-user", "true"):
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", sys.executable, *sys.argv])


class Host:
    """A namespace that is there as long as its process, which ends with ours."""

    def __init__(self, name, address):
        ready = f"hostname {name} && ip link set lo up && echo ready && exec cat"
        self.proc = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", ready], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)
        self.address = address
        if self.proc.stdout.readline() != "ready\n":
            raise Skip("this machine makes no network namespaces")
        self.net = os.readlink(f"/proc/{self.proc.pid}/ns/net")

    def enter(self, *command):
        return ["nsenter", "--target", str(self.proc.pid), "--net", "--uts", "--", *command]

    def run(self, *command):
        subprocess.run(self.enter(*command), check=True)

    def pids(self):
        """What runs there, but for the process that keeps it."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/net") == self.net and int(pid) != self.proc.pid:
                    found.append(int(pid))
        return found

    def end(self):
        self.proc.stdin.close()
        self.proc.stdout.close()
        self.proc.wait()


@contextlib.contextmanager
def two_hosts():
    """Their names are in no resolver: they are known by address."""
    with contextlib.ExitStack() as stack:
        hosts = []
        for i, address in enumerate(ADDRESSES):
            hosts.append(Host(f"mpi-{'ab'[i]}", address))
            stack.callback(hosts[-1].end)
        hosts[0].run("ip", "link", "add", "link-a", "type", "veth", "peer", "name", "link-b", "netns",
                     str(hosts[1].proc.pid))
        for i, host in enumerate(hosts):
            host.run("ip", "address", "add", host.address + "/24", "dev", f"link-{'ab'[i]}")
            host.run("ip", "link", "set", f"link-{'ab'[i]}", "up")
        yield hosts


class Job:
    """mpirun with one rank on each of the hosts, or all ranks here. Its first lines can be awaited."""

    def __init__(self, hosts, n_ranks, *command, tmp):
        self.lines, self.tmp = [], tmp
        mca = {"pml": "ob1", "btl": "tcp,self", "plm": "isolated"}
        args = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(n_ranks)]
        if hosts:
            agent = os.path.join(tmp, "agent")
            with open(agent, "w", encoding="utf-8") as f:  # in place of ssh: HOST COMMAND...
                cases = "".join(f"{h.address}) at={h.proc.pid};; " for h in hosts)
                f.write(f'#!/bin/sh\ncase $1 in {cases}esac\nshift\n'
                        'exec nsenter --target "$at" --net --uts -- sh -c "$*"\n')
            os.chmod(agent, 0o755)
            network = ADDRESSES[0].rsplit(".", 1)[0] + ".0/24"
            mca = {**mca, "plm": "rsh", "plm_rsh_agent": agent, "btl_tcp_if_include": network,
                   "oob_tcp_if_include": network}
            args = hosts[0].enter(*args, "--map-by", "node", "--host", ",".join(h.address for h in hosts))
        else:
            mca["btl_tcp_if_include"] = "lo"
        for name, value in mca.items():
            args += ["--mca", name, value]
        self.proc = subprocess.Popen(args + list(command), env={**os.environ, "TMPDIR": tmp}, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def await_line(self, begin):
        while True:
            for line in self.lines:
                if line.startswith(begin):
                    return line[len(begin):]
            line = self.proc.stdout.readline()
            assert line, f"no line {begin!r} in:\n{self.text()}"
            self.lines.append(line)

    def text(self):
        return "".join(self.lines)

    def end(self):
        """(status, all that it said), when it has ended by itself."""
        try:
            rest, _ = self.proc.communicate(timeout=OUTPUT_LIMIT_S)
        except subprocess.TimeoutExpired as why:
            self.proc.kill()
            raise AssertionError(f"the job did not end; it said:\n{self.text()}") from why
        self.lines.append(rest)
        return self.proc.returncode, self.text()


@contextlib.contextmanager
def job(hosts, n_ranks, *command):
    with tempfile.TemporaryDirectory() as tmp:
        running = Job(hosts, n_ranks, *command, tmp=tmp)
        try:
            yield running
        finally:
            if running.proc.poll() is None:
                running.proc.kill()
            running.proc.wait()
            running.proc.stdout.close()
