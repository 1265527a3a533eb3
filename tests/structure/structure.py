#!/usr/bin/env python3
"""The shape of the tree: arrows between modules, circles of files, sizes of folders and signatures.

    tests/structure/structure.py            the figures, and those over their bounds (exit status 1)
    tests/structure/structure.py --draw     the modules and their arrows for graphviz, rank by rank

Two files have an arrow where one calls a function that the other defines (ctags lists definitions, names are looked for
in the sources); two modules where a file of one includes a header of the other.
"""

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77

# From the floor up; an arrow goes down, or to a neighbour on the same tier if that makes no circle of modules.
TIERS = [
    ["lib/base"],
    ["lib/codec"],
    ["lib/tokenizer", "lib/template", "lib/grammar", "lib/message", "lib/paged_kv", "lib/kernels", "lib/collective", "lib/model", "proto"],
    ["lib/api", "lib/scheduler", "lib/engine", "lib/link", "lib/restart", "lib/traffic"],
    ["cmd/common", "cmd/router", "cmd/scheduler", "cmd/worker", "cmd/weft"],
]
FOLDER_FILES_MAX = 25
CIRCLE_FILES_MAX = 3
CIRCLES_ALLOWED = ("lib/model/",)  # formats that hold each other: its parsers call one another
PARAMETERS_MANY = 7
FUNCTIONS_WITH_MANY_MAX = 19
ASSERTS_PER_1000_MIN = {room: 8 for room in ("lib/api", "lib/tokenizer", "lib/template", "lib/model", "cmd/router")}
CMD_SHARE_MAX = 0.20
ONLY_ROOM_OF = {"nng/": "lib/link", "mpi.h": "lib/collective"}

ASSERT = re.compile(r"\b(WEFT_ASSERT|WEFT_DCHECK|_Static_assert|static_assert)\b")
INCLUDE = re.compile(r'^\s*#include ["<]([^">]+)[">]', re.M)


def read_tree():
    listed = subprocess.run(["git", "ls-files", "lib", "proto", "cmd"], cwd=SOURCE, capture_output=True, text=True,
                            check=False).stdout.split()
    if not listed:  # no checkout: all files there
        listed = [os.path.relpath(os.path.join(at, name), SOURCE) for top in ("lib", "proto", "cmd")
                  for at, _, names in os.walk(os.path.join(SOURCE, top)) for name in names]
    tree = {}
    for name in listed:
        if name.endswith((".c", ".h")) and os.path.exists(os.path.join(SOURCE, name)):
            with open(os.path.join(SOURCE, name), encoding="utf-8", errors="replace") as file:
                tree[name] = file.read()
    return tree


def module_of(name):
    parts = name.split("/")
    return parts[0] if parts[0] == "proto" else "/".join(parts[:2])


def module_arrows(tree):
    """{(from, to): an include that says so}, for headers written as "module/header.h"."""
    modules = {module_of(name) for name in tree}
    owners = {}  # header as it is written -> module; a header of a module's room is written without the room
    for module in modules:
        for name in tree:
            if name.startswith(module + "/") and name.endswith(".h"):
                owners[f"{module.split('/')[-1]}/{os.path.basename(name)}"] = module
    arrows = {}
    for name, text in tree.items():
        for header in INCLUDE.findall(text):
            if "/" not in header:
                continue
            own = os.path.join(module_of(name), header)
            to = owners.get(header)
            if to and own not in tree and to != module_of(name):
                arrows.setdefault((module_of(name), to), f"{name}: {header}")
    return arrows


def tier_of(module):
    for rank, tier in enumerate(TIERS):
        if module in tier:
            return rank
    return None


def circles(graph):
    """Strongly connected components of more than one node (Tarjan 1972)."""
    sys.setrecursionlimit(10000)
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
                on_stack.discard(component[-1])
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def functions(tree):
    """(name, file, number of parameters) of every function that is defined."""
    out = subprocess.run(["ctags", "--output-format=json", "--fields=+S", "--kinds-C=f", "-f", "-", *sorted(tree)],
                         cwd=SOURCE, capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        tag = json.loads(line)
        if tag.get("_type") != "tag":
            continue
        depth, n = 0, 1
        for c in tag.get("signature", "()")[1:-1]:
            depth += (c == "(") - (c == ")")
            n += c == "," and depth == 0
        yield tag["name"], tag["path"], n


def file_calls(tree, defined):
    """Which .c file names functions of which other."""
    where = {}
    for name, path, _ in defined:
        if name.startswith(("weft_", "wefti_")):
            where.setdefault(name, path)
    graph = collections.defaultdict(set)
    for name, text in tree.items():
        if name.endswith(".c"):
            for word in set(re.findall(r"(?<!struct )(?<!enum )\bwefti?_\w+", text)):
                if where.get(word, name) != name and where[word].endswith(".c"):
                    graph[name].add(where[word])
    return graph


def check(tree):
    said = []

    def line(what, is_fine, figure):
        said.append(is_fine)
        print(f"{'  ok  ' if is_fine else 'OVER  '}{what}: {figure}")

    arrows = module_arrows(tree)
    strangers = sorted({module_of(name) for name in tree if tier_of(module_of(name)) is None})
    line("modules without a tier", not strangers, ", ".join(strangers) or 0)
    up = [f"{why}" for (a, b), why in sorted(arrows.items()) if (tier_of(a) or 0) < (tier_of(b) or 0)]
    line("arrows that run up", not up, "; ".join(up) or 0)
    graph = collections.defaultdict(set)
    for a, b in arrows:
        graph[a].add(b)
    rings = circles(graph)
    line("circles of modules", not rings, rings or 0)

    defined = list(functions(tree))
    calls = circles(file_calls(tree, defined))
    large = [c for c in calls if len(c) > CIRCLE_FILES_MAX and not all(f.startswith(CIRCLES_ALLOWED) for f in c)]
    line(f"circles of over {CIRCLE_FILES_MAX} files", not large, "".join(f"\n        {' '.join(c)}" for c in large) or 0)

    sizes = collections.Counter(os.path.dirname(name) for name in tree)
    crowded = [f"{folder} {n}" for folder, n in sizes.most_common() if n > FOLDER_FILES_MAX]
    line(f"folders of over {FOLDER_FILES_MAX} .c and .h files", not crowded, ", ".join(crowded) or 0)

    many = sorted({(path, name, n) for name, path, n in defined if n >= PARAMETERS_MANY})
    line(f"functions of {PARAMETERS_MANY} or more parameters, at most {FUNCTIONS_WITH_MANY_MAX}",
         len(many) <= FUNCTIONS_WITH_MANY_MAX, len(many))
    for path, name, n in many:
        print(f"        {n} {name} {path}")

    lines, asserts = collections.Counter(), collections.Counter()
    for name, text in tree.items():
        lines[module_of(name)] += text.count("\n")
        asserts[module_of(name)] += len(ASSERT.findall(text))
    for room, least in ASSERTS_PER_1000_MIN.items():
        if lines[room]:
            share = 1000 * asserts[room] / lines[room]
            line(f"asserts per 1000 lines of {room}, at least {least}", share >= least, f"{share:.1f}")
    of_cmd = sum(n for module, n in lines.items() if module.startswith("cmd/")) / sum(lines.values())
    line(f"share of cmd/, under {CMD_SHARE_MAX:.0%}", of_cmd < CMD_SHARE_MAX, f"{of_cmd:.1%}")
    for prefix, room in ONLY_ROOM_OF.items():
        others = sorted(name for name, text in tree.items() if module_of(name) != room
                        and any(header.startswith(prefix) for header in INCLUDE.findall(text)))
        line(f"files outside of {room} that include <{prefix}...>", not others, ", ".join(others) or 0)
    return all(said)


def draw(tree):
    print("digraph weft {\n  rankdir=BT; node [shape=box];")
    for rank, tier in enumerate(TIERS):
        there = [m for m in tier if any(module_of(name) == m for name in tree)]
        print(f"  {{ rank=same; {' '.join(json.dumps(m) for m in there)} }}  // tier {rank}")
    for a, b in sorted(module_arrows(tree)):
        print(f"  {json.dumps(a)} -> {json.dumps(b)};")
    print("}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="print the modules' arrows for graphviz")
    args = parser.parse_args()
    if args.draw:
        draw(read_tree())
        return 0
    if not shutil.which("ctags"):
        print("SKIPPED: no ctags (universal-ctags) on this machine")
        return SKIPPED
    return 0 if check(read_tree()) else 1


if __name__ == "__main__":
    sys.exit(main())
