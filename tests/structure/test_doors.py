#!/usr/bin/env python3
"""A module sees another's public headers only, and only of modules on its link line: probes are compiled.

For every module one probe asks the compiler, with the flags that the module's own sources have, which headers of the
tree it could include under any spelling; and three probes are compiled for good: one that must pass (a public header of
a module on the link line), two that must fail (a private header, and a module that is not on the link line).
"""

import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path.cwd()


class Module:
    def __init__(self, line):
        name, folder, headers, shows, links = line.rstrip("\n").split("|")
        self.name = name
        self.folder = SOURCE / folder
        self.headers = [h for h in headers.split(";") if h]
        self.shows = [m for m in shows.split(";") if m.startswith("weft_")]
        self.links = [m for m in links.split(";") if m.startswith("weft_")]
        self.spellings = {f"{self.folder.name}/{pathlib.Path(h).name}" for h in self.headers}


def read_modules():
    lines = (BUILD / "doors" / "modules.txt").read_text().splitlines()
    return {m.name: m for m in map(Module, lines)}


def shown_by(modules, names):
    """The modules on the line, and those that their headers show in turn."""
    seen, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name in seen or name not in modules:
            continue
        seen.add(name)
        todo += modules[name].shows
    return seen


def compile_flags():
    """The include path of each folder and target with sources."""
    flags = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        folder = pathlib.Path(entry["file"]).parent
        words = shlex.split(entry["command"])
        target = words[words.index("-o") + 1]
        paths = [w for w in words if w.startswith("-I")]
        flags.setdefault((folder, target.split(".dir/")[0].split("/")[-1]), paths)
    return flags


MODULES = read_modules()
FLAGS = compile_flags()


def flags_of(module):
    for (folder, target), paths in FLAGS.items():
        if target == module.name and (folder == module.folder or module.folder in folder.parents):
            return paths
    raise AssertionError(f"no source of {module.name} in compile_commands.json")


def preprocess(text, paths, *options):
    with tempfile.TemporaryDirectory() as folder:
        probe = pathlib.Path(folder) / "probe.c"
        probe.write_text(text)
        return subprocess.run(["cc", *options, *paths, str(probe)], capture_output=True, text=True, check=False)


def spellings_of_all():
    """Every header of the tree as somebody might write it, with the module that owns it."""
    found = {}
    for module in MODULES.values():
        for header in module.folder.rglob("*.h"):
            inner = header.relative_to(module.folder)
            outer = header.relative_to(SOURCE)
            for text in {str(inner), header.name, f"{module.folder.name}/{inner}",
                         f"{module.folder.name}/{header.name}", str(outer), f"inside/{module.folder.name}/{inner}"}:
                found.setdefault(text, set()).add(module.name)
    return found


class Doors(unittest.TestCase):
    def test_each_module_sees_the_public_headers_of_its_link_line_alone(self):
        spellings = sorted(spellings_of_all())
        text = "".join(f'#if __has_include("{s}")\nsees {i}\n#endif\n' for i, s in enumerate(spellings))
        for module in MODULES.values():
            with self.subTest(module=module.name):
                sees = shown_by(MODULES, [module.name, *module.shows, *module.links])
                allowed = set().union(*(MODULES[name].spellings for name in sees))
                own = {str(h.relative_to(module.folder)) for h in module.folder.rglob("*.h")}
                out = preprocess(text, flags_of(module), "-E", "-P", "-nostdinc")
                self.assertEqual(out.returncode, 0, out.stderr)
                seen = {spellings[int(w.split()[1])] for w in out.stdout.splitlines() if w.startswith("sees ")}
                self.assertEqual(seen - own, allowed)

    def compile(self, module, header):
        text = f'#include "{header}"\ntypedef int probe;\n'
        return preprocess(text, [*flags_of(MODULES[module]), "-D_GNU_SOURCE"], "-fsyntax-only", "-std=gnu17")

    def test_a_public_header_on_the_link_line_compiles(self):
        out = self.compile("weft_scheduler", "paged_kv/paged_kv.h")
        self.assertEqual(out.returncode, 0, out.stderr)

    def test_a_private_header_does_not_compile(self):
        for header in ("model/model_internal.h", "model_internal.h", "kernels/kern_internal.h"):
            out = self.compile("weft_engine", header)
            self.assertNotEqual(out.returncode, 0, f"weft_engine could include {header}")
            self.assertIn("No such file", out.stderr)

    def test_a_module_that_is_not_on_the_link_line_does_not_compile(self):
        for module, header in (("weft_scheduler", "engine/engine.h"), ("weft_base", "proto/proto.h"),
                               ("weft_paged_kv", "scheduler/scheduler.h")):
            out = self.compile(module, header)
            self.assertNotEqual(out.returncode, 0, f"{module} could include {header}")
            self.assertIn("No such file", out.stderr)

    def test_nobody_climbs_out_of_a_folder(self):
        """A path with ".." needs no door, so there must be none."""
        for folder in ("lib", "proto", "cmd", "tests", "bench"):
            for source in (SOURCE / folder).rglob("*.[ch]"):
                for number, line in enumerate(source.read_text(errors="replace").splitlines(), 1):
                    self.assertFalse(line.startswith('#include "..'), f"{source}:{number}: {line}")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
