"""The page in Chromium, as people use it: page.mjs drives it, and kills what it is told to.

WEFT_PAGE_SHOTS=DIR takes the pictures of docs/ there; without it, they lie beside the build."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system"))

import harness  # noqa: E402
import npm_packages  # noqa: E402
from harness import Server, Skip  # noqa: E402

KEY = "a-key-for-the-test"
PACKAGES = {"puppeteer-core": "24.43.1", "axe-core": "4.14.1"}  # pinned, see test_npm.py
EXPERTS = os.path.join(harness.SOURCE_DIR, "tests/data/zoo/qwen3_moe")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def chromium():
    for name in CHROMIUM:
        if shutil.which(name):
            return shutil.which(name)
    raise Skip("chromium is not installed (make test-page installs it)")


@contextlib.contextmanager
def without_template(model):
    """The same model, but it cannot chat."""
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(model):
            os.symlink(os.path.join(model, name), os.path.join(folder, name))
        path = os.path.join(folder, "tokenizer_config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        del config["chat_template"]
        os.remove(path)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        yield folder


def drive(what, server):
    """Runs a part of page.mjs against this server."""
    folder = npm_packages.folder("page", PACKAGES)
    shots = os.environ.get("WEFT_PAGE_SHOTS") or os.path.join(folder, "shots")
    os.makedirs(shots, exist_ok=True)
    script = os.path.join(folder, "page.mjs")
    shutil.copy(os.path.join(HERE, "page.mjs"), script)
    facts = {"what": what, "url": f"http://127.0.0.1:{server.port}", "key": KEY, "shots": shots, "chromium": chromium(),
             "forDocs": "WEFT_PAGE_SHOTS" in os.environ,
             "supervisor": server.proc.pid, "pids": server.children()}
    with subprocess.Popen(["node", script, json.dumps(facts)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as node:
        try:
            out, err = node.communicate(timeout=harness.LIMIT_S)
        except subprocess.TimeoutExpired:
            node.terminate()  # not kill: it takes its browser along
            out, err = node.communicate()
    print("    " + out.replace("\n", "\n    "), flush=True)
    assert node.returncode == 0, err
    assert out.splitlines()[-1] == "all checks", out


def test_the_page_in_a_browser():
    chromium()
    with Server("--served-model-name", "fable-6m", env={"WEFT_API_KEY": KEY}) as server:
        drive("page", server)


def test_a_model_with_experts_and_without_a_template():
    chromium()
    with (without_template(EXPERTS) as model,
          Server("--served-model-name", "experts", "--workers", "2", model=model) as server):
        drive("experts", server)


if __name__ == "__main__":
    harness.main()
