"""The metrics as Prometheus' own promtool reads them."""

import shutil
import subprocess

import harness
from harness import Server, Skip


def test_promtool_accepts_the_metrics():
    if not shutil.which("promtool"):
        raise Skip("promtool (Debian's prometheus) is not installed")
    with Server() as server:
        server.complete(prompt="x", max_tokens=4)
        done = subprocess.run(["promtool", "check", "metrics"], input=server.get("/metrics").body, capture_output=True,
                              timeout=harness.LIMIT_S, check=False)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
        assert not done.stderr.strip(), done.stderr.decode()


if __name__ == "__main__":
    harness.main()
