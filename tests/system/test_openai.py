"""The openai package of npm, a client nobody here wrote."""

import json
import os
import shutil
import subprocess

import harness
from harness import Server, Skip

KEY = "a-key-for-the-test"
VERSION = "6.49.0"  # pinned: a release of theirs must not fail a build of ours
TRIES = 3


def installed_version(folder):
    try:
        with open(os.path.join(folder, "node_modules/openai/package.json"), encoding="utf-8") as f:
            return json.load(f)["version"]
    except (OSError, ValueError, KeyError):
        return None


def npm_install(folder):
    """None, or why it failed."""
    try:
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--save-exact", "--fetch-retries=1",
                               f"openai@{VERSION}"], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "npm took more than 120 s"
    return None if done.returncode == 0 else " ".join(done.stderr.split())[-300:] or f"npm ended with {done.returncode}"


def npm_folder():
    """A folder with the openai package: kept beside the build, fetched on first use."""
    folder = os.path.join(os.path.dirname(harness.BIN_DIR), "npm")
    if not shutil.which("npm") or not shutil.which("node"):
        raise Skip("node and npm are not installed")
    if installed_version(folder) == VERSION:
        return folder
    if os.environ.get("WEFT_OFFLINE") == "1":
        raise Skip(f"openai {VERSION} is not in {folder}, and WEFT_OFFLINE=1 forbids to fetch it")
    why = None
    for i in range(TRIES):
        shutil.rmtree(os.path.join(folder, "node_modules"), ignore_errors=True)  # half an installation
        os.makedirs(folder, exist_ok=True)
        why = npm_install(folder)
        if not why and installed_version(folder) == VERSION:
            return folder
        print(f"    npm, try {i + 1} of {TRIES}: {why}", flush=True)
    raise Skip(f"npm cannot fetch openai {VERSION}, {TRIES} times: {why}")


def test_the_openai_package_of_npm():
    folder = npm_folder()
    script = os.path.join(folder, "openai_client.mjs")
    shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), "openai_client.mjs"), script)
    with Server(env={"WEFT_API_KEY": KEY}) as server:
        done = subprocess.run(["node", script, f"http://127.0.0.1:{server.port}", KEY], cwd=folder,
                              capture_output=True, text=True, timeout=harness.LIMIT_S * 2, check=False)
        print("    " + done.stdout.replace("\n", "\n    "), flush=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "all 7 checks", done.stdout


if __name__ == "__main__":
    harness.main()
