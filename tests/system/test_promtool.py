"""The metrics as Prometheus' own promtool reads them."""

import os
import shutil
import subprocess

import harness
from harness import Server, Skip

OLMOE = os.path.join(harness.SOURCE_DIR, "tests/data/zoo/olmoe")


# Installed, or unpacked by `make deps-promtool`.
PROMTOOL = shutil.which("promtool") or shutil.which(os.path.join(harness.SOURCE_DIR, "build/tools/promtool"))


def check(server):
    body = server.get("/metrics").body
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=body, capture_output=True, timeout=harness.LIMIT_S,
                          check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert not done.stderr.strip(), done.stderr.decode()


def test_promtool_accepts_the_metrics():
    if not PROMTOOL:
        raise Skip("there is no promtool (make deps-promtool)")
    with Server() as server:
        server.complete(prompt="x", max_tokens=4)
        check(server)


def test_promtool_accepts_the_metrics_of_experts():
    if not PROMTOOL:
        raise Skip("there is no promtool (make deps-promtool)")
    with Server(model=OLMOE) as server:
        server.complete(prompt=[1, 2, 3], max_tokens=4)
        harness.wait_until("counts of experts", lambda: server.metric("weft_expert_tokens_total") > 0)
        check(server)


if __name__ == "__main__":
    harness.main()
