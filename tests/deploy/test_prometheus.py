"""Alert rules and dashboard: promtool reads them, each alert has a case and a section that says what to do, and every
metric and label they name is one that servers have."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))

import harness  # noqa: E402
from test_schedulers import Cluster  # noqa: E402
from harness import Server, Skip  # noqa: E402

DEPLOY = os.path.join(harness.SOURCE_DIR, "deploy")
PROMETHEUS = os.path.join(DEPLOY, "prometheus")
OLMOE = os.path.join(harness.SOURCE_DIR, "tests/data/zoo/olmoe")
PROMTOOL = shutil.which("promtool") or shutil.which(os.path.join(harness.SOURCE_DIR, "build/tools/promtool"))
FROM_PROMETHEUS = {"job", "instance"}  # it adds them to what it scrapes
OPEN_VALUES = {"code", "reason", "layer", "expert", "le"}  # of which a server shows those that have come up


def promtool(*args):
    if not PROMTOOL:
        raise Skip("there is no promtool (make deps-promtool)")
    done = subprocess.run([PROMTOOL, *args], cwd=PROMETHEUS, capture_output=True, text=True, timeout=harness.LIMIT_S,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def alerts():
    return re.findall(r"^ +- alert: (\w+)$", read(PROMETHEUS, "alerts.yml"), re.MULTILINE)


def alert_expressions():
    """What stands after expr: in one line, or folded in deeper ones."""
    return [" ".join((one or folded).split()) for one, folded in re.findall(
        r"^ {8}expr: (?!>-)(.*)$|^ {8}expr: >-\n((?: {10}.*\n)+)", read(PROMETHEUS, "alerts.yml"), re.MULTILINE)]


def dashboard_expressions():
    board = json.loads(read(DEPLOY, "grafana/weft.json"))
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert all(panel.get("targets") for panel in board["panels"] if panel["type"] != "row")
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]), "two panels with one id"
    return found


def drop(server):
    """A request that the queue has no place for."""
    body = {"prompt": [1], "max_tokens": 1}

    def fill():
        with contextlib.ExitStack() as stack, server.stopped() as still:
            for n in (1, 2):
                conn = stack.enter_context(contextlib.closing(server.connect()))
                conn.request("POST", "/v1/completions", json.dumps(body))
                still.wait_until(f"{n} requests", lambda n=n: harness.load(server.metrics()) == n)
            assert server.post("/v1/completions", body).status == 429
    harness.attempt(fill)


def note(found, text):
    for line in text.splitlines():
        match = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$", line)
        if match:
            labels = found.setdefault(match[1], {})
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or ""):
                labels.setdefault(label, set()).add(value)


def exposed():
    """{name of a sample: {label: its values}} of servers with and without experts, of ranks, and of a router with several
    schedulers, after some work."""
    found = {"up": {}}
    with Cluster() as cluster:
        note(found, cluster.request("GET", "/metrics").text)
    with Server("--workers", "2", "--layout", "tp") as server:
        server.complete(prompt=[1, 2, 3], max_tokens=4)
        for name in "weft_worker_meeting_seconds_total", "weft_numa_remote_pages":
            harness.wait_until(f"the ranks to report {name}",
                               lambda n=name: server.get("/metrics").text.count(n + "{") == 2)
        note(found, server.get("/metrics").text)
    for model in (harness.FABLE, OLMOE):
        with Server("--max-queue", "1", "--max-num-seqs", "1", model=model) as server:
            server.complete(prompt=[1, 2, 3], max_tokens=4)
            server.get("/nowhere")
            drop(server)
            if model == OLMOE:
                harness.wait_until("counts of experts", lambda s=server: s.metric("weft_expert_tokens_total") > 0)
            note(found, server.get("/metrics").text)
    return found


def check_names(expression, there):
    """Every metric that it names is there, with every label that it selects, groups or joins by."""
    labels_of_all = set(FROM_PROMETHEUS)
    names = [m for m in re.finditer(r"\b(?:weft_\w+|process_\w+|up)\b", expression)]
    assert names, expression
    for match in names:
        assert match[0] in there, f"no server has {match[0]}: {expression}"
        labels = there[match[0]]
        labels_of_all |= set(labels)
        selector = re.match(r"\{(.*?)\}", expression[match.end():])
        for label, how, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', selector[1] if selector else ""):
            assert label in labels or label in FROM_PROMETHEUS, f"{match[0]} has no label {label}: {expression}"
            if how == "=" and label not in OPEN_VALUES | FROM_PROMETHEUS:
                assert value in labels[label], f"{match[0]} has no {label}={value}: {expression}"
    for group in re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", expression):
        for label in filter(None, re.split(r"[,\s]+", group)):
            assert label in labels_of_all, f"no metric here has the label {label}: {expression}"


def test_promtool_accepts_the_rules_and_every_alert_fires_when_it_should():
    print("    " + promtool("check", "rules", "alerts.yml").strip().replace("\n", " "), flush=True)
    promtool("test", "rules", "alerts.test.yml")
    names, cases = alerts(), read(PROMETHEUS, "alerts.test.yml")
    assert len(names) > 20 and len(set(names)) == len(names)
    for name in names:
        assert re.search(rf"^  - name: {name}$", cases, re.MULTILINE), f"{name} has no case in alerts.test.yml"


def test_every_alert_has_a_section_that_says_what_to_do():
    rules, text = read(PROMETHEUS, "alerts.yml"), read(harness.SOURCE_DIR, "docs/operations.md")
    sections = re.findall(r"^### (Weft\w+)$", text, re.MULTILINE)
    assert sorted(sections) == sorted(alerts()), set(sections) ^ set(alerts())
    for name in alerts():
        assert f"runbook: docs/operations.md#{name.lower()}\n" in rules, name


def test_rules_and_dashboard_name_metrics_that_servers_have():
    there = exposed()
    rules, panels = alert_expressions(), dashboard_expressions()
    assert len(rules) == len(alerts())
    for expression in rules + panels:
        check_names(expression, there)
    print(f"    {len(rules)} rules, {len(panels)} expressions of panels", flush=True)


def test_the_line_in_the_docs_turns_the_names_into_vllms():
    script = re.search(r"^    sed '(.*)'$", read(harness.SOURCE_DIR, "docs/operations.md"), re.MULTILINE)[1]
    names = []
    for prefix in ("weft_", "vllm:"):
        with Server("--metrics-prefix", prefix, check_idle=False) as server:
            last = f"{prefix}worker_weight_bytes{{"
            harness.wait_until("the worker's report", lambda s=server, w=last: w in s.get("/metrics").text)
            found = re.findall(r"^# TYPE (\S+)", server.get("/metrics").text, re.MULTILINE)
            names.append([n for n in found if not n.endswith("numa_remote_pages")])  # it may be counted later
    turned = subprocess.run(["sed", script], input="\n".join(names[0]), capture_output=True, text=True,
                            check=True).stdout.split()
    assert sorted(turned) == sorted(names[1]), set(turned) ^ set(names[1])
    # What the Gateway API's inference extension looks for.
    wanted = ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc", "cache_config_info")
    assert {f"vllm:{name}" for name in wanted} <= set(turned)


def test_promtool_parses_every_expression_of_the_dashboard():
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as rules:
        rules.write("groups:\n  - name: panels\n    rules:\n")
        for i, expression in enumerate(dashboard_expressions()):
            for variable, value in (("$__rate_interval", "5m"), ("$instance", ".*")):
                expression = expression.replace(variable, value)
            assert "$" not in expression, expression
            rules.write(f"      - {{record: 'panel:{i}', expr: '{expression}'}}\n")
        rules.flush()
        promtool("check", "rules", rules.name)


if __name__ == "__main__":
    harness.main()
