"""Packages of npm, clients nobody here wrote. npm/NAME.mjs is what each is made to do."""

import os
import re
import shutil
import subprocess

import harness
import npm_packages
from harness import Server

KEY = "a-key-for-the-test"
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npm")


def drive(name, packages, node_version=18):
    """Runs npm/NAME.mjs against a server. The versions are fixed: a release of theirs must not fail a build of ours."""
    folder = npm_packages.folder(name, packages, node_version)
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


ZOD = {"zod": "4.6.7"}


def test_openai():
    drive("openai", {"openai": "6.49.0", **ZOD})


def test_anthropic():
    drive("anthropic", {"@anthropic-ai/sdk": "1.14.0", **ZOD})


def test_ai():
    drive("ai", {"ai": "6.0.324", "@ai-sdk/openai-compatible": "2.0.91", **ZOD})


def test_langchain():
    drive("langchain", {"@langchain/openai": "1.5.8", "@langchain/core": "1.4.0", **ZOD}, node_version=20)


def test_ollama():
    drive("ollama", {"ollama": "0.6.4"})


if __name__ == "__main__":
    harness.main()
