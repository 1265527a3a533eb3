"""The image of deploy/image: what is in it, how large it is, and that it serves as an unprivileged user on a root that
is read-only, until a drain ends it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))

import harness  # noqa: E402
from harness import Server, Skip, Stream  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(harness.SOURCE_DIR, "deploy/image/build.sh")
IN_IMAGE = os.path.join(HERE, "in_image.sh")
PROGRAMS = {"weft", "weft-router", "weft-scheduler", "weft-worker"}
SIZE_MAX = 40 << 20


@contextlib.contextmanager
def image():
    """The image's root."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # for the image's user
        done = subprocess.run([BUILD, harness.BIN_DIR, f"{folder}/out", "--no-oci"], capture_output=True, text=True,
                              check=False, timeout=harness.LIMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        yield f"{folder}/out/rootfs"


def files_of(root):
    for folder, _, names in os.walk(root):
        for name in names:
            yield os.path.join(folder, name)


def serves_in(root, *args, **more):
    return Server(*args, model="/models", wrap=(IN_IMAGE, root, harness.FABLE), **more)


def check_can_run(root):
    """Namespaces for everybody are not there everywhere."""
    for tool in ("unshare", "setpriv"):
        if not shutil.which(tool):
            raise Skip(f"there is no {tool} here")
    done = subprocess.run([IN_IMAGE, root, harness.FABLE, "weft", "--version"], capture_output=True, text=True,
                          check=False, timeout=harness.LIMIT_S)
    if done.returncode != 0 and ("unshare" in done.stderr or "mount" in done.stderr):
        raise Skip(f"no namespaces for an image here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_holds_the_programs_and_their_libraries_and_no_shell():
    with image() as root:
        files = list(files_of(root))
        assert {os.path.basename(f) for f in files if "/usr/bin/" in f} == PROGRAMS
        libraries = [f for f in files if "/usr/lib" in f]
        assert libraries and all(".so" in os.path.basename(f) for f in libraries), libraries
        runnable = [f for f in files if os.access(f, os.X_OK) and f not in libraries]
        assert {os.path.basename(f) for f in runnable} == PROGRAMS, runnable
        assert not [f for f in files if os.lstat(f).st_mode & 0o6000], "something is set-uid"
        size = sum(os.lstat(f).st_size for f in files)
        print(f"    {size / (1 << 20):.1f} MiB in {len(files)} files, {len(libraries)} of them libraries", flush=True)
        assert size < SIZE_MAX


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def test_it_answers_as_an_unprivileged_user_and_ends_by_a_drain():
    body = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    with Server() as server:
        expected = server.complete(**body)["choices"][0]["text"]
    with image() as root:
        check_can_run(root)
        with serves_in(root) as server:
            assert server.complete(**body)["choices"][0]["text"] == expected
            for pid in (server.proc.pid, *server.children().values()):
                status = status_of(pid)
                assert "0" not in status["Uid"].split() and int(status["CapEff"], 16) == 0, status
                assert os.path.realpath(f"/proc/{pid}/root") == os.path.realpath(root)
            server.kill("worker", "scheduler")  # and is whole again, from what is in the image
            assert server.complete(**body)["choices"][0]["text"] == expected
            stream = Stream(server, {**body, "max_tokens": 900})
            harness.wait_until("its first token", lambda: stream.has_begun)
            server.proc.send_signal(signal.SIGTERM)
            assert len(stream.events()) > 1
            assert server.proc.wait(harness.LIMIT_S) == 0
            server.check_idle = False


if __name__ == "__main__":
    harness.main()
