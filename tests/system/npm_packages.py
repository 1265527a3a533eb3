"""Packages of npm, which nobody here wrote: in fixed versions, kept beside the build and fetched on first use."""

import json
import os
import re
import shutil
import subprocess

import harness
from harness import Skip

TRIES = 3


def installed_version(folder, package):
    try:
        with open(os.path.join(folder, "node_modules", package, "package.json"), encoding="utf-8") as f:
            return json.load(f)["version"]
    except (OSError, ValueError, KeyError):
        return None


def are_installed(folder, packages):
    return all(installed_version(folder, name) == version for name, version in packages.items())


def install(folder, packages):
    """None, or why it failed."""
    wanted = [f"{name}@{version}" for name, version in packages.items()]
    try:
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--save-exact", "--fetch-retries=1", *wanted],
                              cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "npm took more than 120 s"
    return None if done.returncode == 0 else " ".join(done.stderr.split())[-300:] or f"npm ended with {done.returncode}"


def folder(name, packages, node_version=18):
    """A folder with the packages: kept beside the build, one for each client, fetched on first use."""
    at = os.path.join(os.path.dirname(harness.BIN_DIR), "npm", name)
    what = ", ".join(f"{package} {version}" for package, version in packages.items())
    if not shutil.which("npm") or not shutil.which("node"):
        raise Skip("node and npm are not installed")
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(re.match(r"v(\d+)", node).group(1)) < node_version:
        raise Skip(f"{what} wants node {node_version}, this is {node}")
    if are_installed(at, packages):
        return at
    if os.environ.get("WEFT_OFFLINE") == "1":
        raise Skip(f"{what} is not in {at}, and WEFT_OFFLINE=1 forbids to fetch it")
    why = None
    for i in range(TRIES):
        shutil.rmtree(at, ignore_errors=True)  # half an installation, or another version
        os.makedirs(at)
        with open(os.path.join(at, "package.json"), "w", encoding="utf-8") as f:
            json.dump({"private": True}, f)  # or npm would look for one in the folders above
        why = install(at, packages)
        if not why and are_installed(at, packages):
            return at
        print(f"    npm, try {i + 1} of {TRIES}: {why}", flush=True)
    raise Skip(f"npm cannot fetch {what}, {TRIES} times: {why}")
