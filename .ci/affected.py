#!/usr/bin/env python3
"""Of the sources that are named on standard input, those that are built of a file that commits since a time have
changed: affected.py BUILD SINCE. Reads what ninja knows of includes, so the build must be there. What ninja knows
nothing of is among them, and all are where the linter's own settings have changed."""

import os
import subprocess
import sys


def changed_since(since):
    """Paths from the root of the repository, of files that are still there."""
    log = subprocess.run(["git", "log", f"--since={since}", "--format=", "--name-only"], capture_output=True, text=True,
                         check=True)
    return {line for line in log.stdout.split("\n") if line and os.path.exists(line)}


def objects(build):
    """Of each object: the source it is made of, and all that this includes."""
    deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    known = {}
    for paragraph in deps.split("\n\n"):
        paths = [line.strip() for line in paragraph.split("\n")[1:] if line.startswith("    ")]
        for path in paths:
            if path not in known:  # headers are reached by links, too
                known[path] = os.path.relpath(os.path.realpath(os.path.join(build, path)))
        if paths:
            yield [known[path] for path in paths]


def main():
    """Prints them, one a line."""
    build, since = sys.argv[1:]
    sources = set(sys.stdin.read().split())
    changed = changed_since(since)
    built = list(objects(build))
    affected = {files[0] for files in built if changed.intersection(files)}
    unknown = sources - {files[0] for files in built}
    if ".clang-tidy" not in changed:
        sources &= affected | unknown
    print("\n".join(sorted(sources)))


if __name__ == "__main__":
    main()
