"""Packages of npm, clients nobody here wrote. npm/NAME.mjs is what each is made to do."""

import json
import os
import re
import shutil
import subprocess

import harness
from harness import Server, Skip

KEY = "a-key-for-the-test"
TRIES = 3
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npm")


def installed_version(folder, package):
    try:
        with open(os.path.join(folder, "node_modules", package, "package.json"), encoding="utf-8") as f:
            return json.load(f)["version"]
    except (OSError, ValueError, KeyError):
        return None


def are_installed(folder, packages):
    return all(installed_version(folder, name) == version for name, version in packages.items())


def npm_install(folder, packages):
    """None, or why it failed."""
    wanted = [f"{name}@{version}" for name, version in packages.items()]
    try:
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--save-exact", "--fetch-retries=1", *wanted],
                              cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "npm took more than 120 s"
    return None if done.returncode == 0 else " ".join(done.stderr.split())[-300:] or f"npm ended with {done.returncode}"


def npm_folder(name, packages, node_version):
    """A folder with the packages: kept beside the build, one for each client, fetched on first use."""
    folder = os.path.join(os.path.dirname(harness.BIN_DIR), "npm", name)
    what = ", ".join(f"{package} {version}" for package, version in packages.items())
    if not shutil.which("npm") or not shutil.which("node"):
        raise Skip("node and npm are not installed")
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(re.match(r"v(\d+)", node).group(1)) < node_version:
        raise Skip(f"{what} wants node {node_version}, this is {node}")
    if are_installed(folder, packages):
        return folder
    if os.environ.get("WEFT_OFFLINE") == "1":
        raise Skip(f"{what} is not in {folder}, and WEFT_OFFLINE=1 forbids to fetch it")
    why = None
    for i in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)  # half an installation, or another version
        os.makedirs(folder)
        with open(os.path.join(folder, "package.json"), "w", encoding="utf-8") as f:
            json.dump({"private": True}, f)  # or npm would look for one in the folders above
        why = npm_install(folder, packages)
        if not why and are_installed(folder, packages):
            return folder
        print(f"    npm, try {i + 1} of {TRIES}: {why}", flush=True)
    raise Skip(f"npm cannot fetch {what}, {TRIES} times: {why}")


def drive(name, packages, node_version=18):
    """Runs npm/NAME.mjs against a server. The versions are fixed: a release of theirs must not fail a build of ours."""
    folder = npm_folder(name, packages, node_version)
    for file in ("check.mjs", f"{name}.mjs"):
        shutil.copy(os.path.join(HERE, file), folder)
    with open(os.path.join(folder, f"{name}.mjs"), encoding="utf-8") as f:
        n_checks = f.read().count("\nawait check(")
    with Server("--served-model-name", "fable, another-name", env={"WEFT_API_KEY": KEY}) as server:
        done = subprocess.run(["node", f"{name}.mjs", f"http://127.0.0.1:{server.port}", KEY, "fable"], cwd=folder,
                              capture_output=True, text=True, timeout=harness.LIMIT_S * 2, check=False)
        print("    " + done.stdout.replace("\n", "\n    "), flush=True)
        assert done.returncode == 0, done.stderr
        assert len(re.findall(r"^ok ", done.stdout, re.MULTILINE)) == n_checks > 0, done.stdout


def test_openai():
    drive("openai", {"openai": "6.49.0"})


def test_ai():
    drive("ai", {"ai": "6.0.324", "@ai-sdk/openai-compatible": "2.0.91"})


def test_langchain():
    drive("langchain", {"@langchain/openai": "1.5.8", "@langchain/core": "1.4.0"}, node_version=20)


def test_ollama():
    drive("ollama", {"ollama": "0.6.4"})


if __name__ == "__main__":
    harness.main()
