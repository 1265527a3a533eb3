"""Packages of npm, clients nobody here wrote. npm/*.mjs is what they are made to do."""

import os
import re
import shutil
import subprocess
import tempfile

import harness
import npm_packages
from harness import Server

KEY = "a-key-for-the-test"
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npm")
NAMES = ("--served-model-name", "fable, another-name")
EMBEDDER = os.path.join(harness.SOURCE_DIR, "tests", "data", "embed", "qwen3-last")
# The toy's template knows no tools, and its context is too short for a list of them.
TOOLS = (*NAMES, "--chat-template", os.path.join(HERE, "tools.jinja"), "--max-model-len", "8192")


def drive(folder, script, *options, served=harness.FABLE):
    """Runs npm/SCRIPT.mjs, in a folder that has its packages, against a server."""
    for file in ("check.mjs", f"{script}.mjs"):
        shutil.copy(os.path.join(HERE, file), folder)
    with open(os.path.join(folder, f"{script}.mjs"), encoding="utf-8") as f:
        n_checks = f.read().count("\nawait check(")
    with Server(*options, model=served, env={"WEFT_API_KEY": KEY}) as server:
        done = subprocess.run(["node", f"{script}.mjs", f"http://127.0.0.1:{server.port}", KEY, "fable"], cwd=folder,
                              capture_output=True, text=True, timeout=harness.LIMIT_S * 2, check=False)
        print("    " + done.stdout.replace("\n", "\n    "), flush=True)
        assert done.returncode == 0, done.stderr
        assert len(re.findall(r"^ok ", done.stdout, re.MULTILINE)) == n_checks > 0, done.stdout


# The versions are fixed: a release of theirs must not fail a build of ours.
ZOD = {"zod": "4.6.7"}


def test_openai():
    folder = npm_packages.folder("openai", {"openai": "6.49.0", **ZOD})
    drive(folder, "openai", *NAMES)
    drive(folder, "openai_tools", *TOOLS)
    drive(folder, "openai_responses", *TOOLS, "--responses-store", "16MiB")
    drive(folder, "openai_embeddings", *NAMES, served=EMBEDDER)
    with tempfile.TemporaryDirectory() as store:
        drive(folder, "openai_batches", *NAMES, "--batch-store", store)


def test_anthropic():
    drive(npm_packages.folder("anthropic", {"@anthropic-ai/sdk": "1.14.0", **ZOD}), "anthropic", *NAMES)


def test_ai():
    folder = npm_packages.folder("ai", {"ai": "6.0.324", "@ai-sdk/openai-compatible": "2.0.91", **ZOD})
    drive(folder, "ai", *NAMES)
    drive(folder, "ai_tools", *TOOLS)


def test_langchain():
    folder = npm_packages.folder("langchain", {"@langchain/openai": "1.5.8", "@langchain/core": "1.4.0", **ZOD},
                                 node_version=20)
    drive(folder, "langchain", *NAMES)
    drive(folder, "langchain_tools", *TOOLS)


def test_mcp():
    drive(npm_packages.folder("mcp", {"@modelcontextprotocol/sdk": "1.32.2", "ajv": "8.20.0", **ZOD}), "mcp", *TOOLS)


def test_ollama():
    drive(npm_packages.folder("ollama", {"ollama": "0.6.4"}), "ollama", *NAMES)


if __name__ == "__main__":
    harness.main()
