"""The manifests of deploy/kubernetes by Kubernetes' own schemas, as they are and as kustomize makes them, and that they
fit the server. Of the Helm chart what can be known without Helm, and of Envoy's example that it is YAML."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))

import harness  # noqa: E402
import npm_packages  # noqa: E402
from harness import Skip  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.join(harness.SOURCE_DIR, "deploy")
BASE = os.path.join(DEPLOY, "kubernetes/base")
CHART = os.path.join(DEPLOY, "helm/weft")
PACKAGES = {"kubernetes-models": "4.5.1", "@kubernetes-models/prometheus-operator": "4.4.4", "yaml": "2.9.1"}


def judge(mode, *files, is_fine=True):
    """The documents of these files; or, if something is to be wrong with them, the words about it."""
    folder = npm_packages.folder("kubernetes", PACKAGES)
    shutil.copy(os.path.join(HERE, "kubernetes.mjs"), folder)
    done = subprocess.run(["node", "kubernetes.mjs", mode, *files], cwd=folder, capture_output=True, text=True,
                          timeout=harness.LIMIT_S, check=False)
    assert (done.returncode == 0) == is_fine, done.stderr or done.stdout
    return json.loads(done.stdout) if is_fine else done.stderr


def base_files():
    found = sorted(f for f in glob.glob(f"{BASE}/*.yaml") if os.path.basename(f) != "kustomization.yaml")
    assert len(found) == 6, found
    return found


def rendered():
    """What kustomize makes of the example, as a file's path."""
    if not shutil.which("kubectl"):
        raise Skip("there is no kubectl here, which has kustomize in it")
    done = subprocess.run(["kubectl", "kustomize", os.path.join(DEPLOY, "kubernetes/example")], capture_output=True,
                          check=False, timeout=harness.LIMIT_S)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def of_kind(objects, kind):
    return [o for o in objects if o["kind"] == kind]


def settings_known():
    said = subprocess.run([os.path.join(harness.BIN_DIR, "weft"), "help", "serve"], capture_output=True, text=True,
                          check=True).stdout
    return {"WEFT_" + flag.upper().replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]+)", said)}


def check_settings(settings, grace_s):
    unknown = {name for name in settings if name.startswith("WEFT_")} - settings_known()
    assert not unknown, unknown
    drain_ms = int(settings["WEFT_DRAIN_DELAY"]) + int(settings["WEFT_DRAIN_TIMEOUT"])
    assert grace_s * 1000 >= drain_ms + 5000, (grace_s, drain_ms)


def check_pod(pod):
    """What the server asks of its surroundings, and what keeps it apart from them."""
    assert pod["enableServiceLinks"] is False and pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["requests"] == container["resources"]["limits"], "not of the class Guaranteed"
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert probes == {"startupProbe": "/health", "readinessProbe": "/health", "livenessProbe": "/health/live"}
    assert {p["name"] for p in container["ports"]} == {"http"}
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}


def is_in(labels, all_labels):
    return labels and set(labels.items()) <= set(all_labels.items())


def check_group(objects, deployment):
    """The objects that go with a Deployment find it, and its pods, by name and labels."""
    name, labels = deployment["metadata"]["name"], deployment["spec"]["template"]["metadata"]["labels"]
    assert is_in(deployment["spec"]["selector"]["matchLabels"], labels)
    found = {o["kind"]: o for o in objects if o["metadata"]["name"] == name}
    service, monitor = found["Service"], found["ServiceMonitor"]
    assert is_in(service["spec"]["selector"], labels)
    assert is_in(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
    assert {e["port"] for e in monitor["spec"]["endpoints"]} == {p["name"] for p in service["spec"]["ports"]}
    assert is_in(found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"], labels)
    policy = found["NetworkPolicy"]["spec"]
    assert is_in(policy["podSelector"]["matchLabels"], labels)
    assert "matchLabels" not in policy["ingress"][0]["from"][0]["podSelector"], "clients would need the group's labels"
    scaler = found["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == name
    with open(os.path.join(harness.SOURCE_DIR, "docs/metrics.md"), encoding="utf-8") as f:
        known = f.read()
    for metric in scaler["metrics"]:
        assert f"`{metric['pods']['metric']['name']}`" in known, metric


def test_the_base_is_valid_and_fits_the_server():
    objects = judge("manifests", *base_files())
    (deployment,) = of_kind(objects, "Deployment")
    check_pod(deployment["spec"]["template"]["spec"])
    check_group(objects, deployment)
    (kustomization,) = judge("yaml", os.path.join(BASE, "kustomization.yaml"))
    assert sorted(kustomization["resources"]) == sorted(os.path.basename(f) for f in base_files())
    (config,) = kustomization["configMapGenerator"]
    check_settings(dict(line.split("=", 1) for line in config["literals"]),
                   deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])


def test_what_kustomize_makes_of_the_example_is_valid_and_apart():
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(rendered())
        file.flush()
        objects = judge("manifests", file.name)
    deployments = of_kind(objects, "Deployment")
    assert len(deployments) == 2
    configs = {c["metadata"]["name"]: c["data"] for c in of_kind(objects, "ConfigMap")}
    for deployment in deployments:
        pod = deployment["spec"]["template"]["spec"]
        check_pod(pod)
        check_group(objects, deployment)
        (source,) = pod["containers"][0]["envFrom"]
        check_settings(configs[source["configMapRef"]["name"]], pod["terminationGracePeriodSeconds"])
    one, other = (d["spec"]["selector"]["matchLabels"] for d in deployments)
    assert not is_in(one, other) and not is_in(other, one), "two groups with one selector"


def test_a_wrong_manifest_is_found_out():
    with open(os.path.join(BASE, "deployment.yaml"), encoding="utf-8") as f:
        text = f.read()
    unknown = "unknown fields: /spec/template/spec/enableServiceLink"
    for was, now, words in (("enableServiceLinks", "enableServiceLink", unknown),
                            ("containerPort: 8080", "containerPort: http", "containerPort"),
                            ("  selector:\n    matchLabels:\n      app.kubernetes.io/name: weft\n", "", "selector")):
        assert was in text
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text.replace(was, now, 1))
            file.flush()
            said = judge("manifests", file.name, is_fine=False)
        assert words in said, said


def test_the_chart_uses_what_its_values_have():
    chart, values = judge("yaml", os.path.join(CHART, "Chart.yaml"), os.path.join(CHART, "values.yaml"))
    assert chart["apiVersion"] == "v2" and chart["name"] == "weft"
    templates, used = sorted(glob.glob(f"{CHART}/templates/*")), set()
    assert len(templates) == 8, templates
    for path in templates:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        actions = re.findall(r"\{\{-?\s*(.*?)\s*-?\}\}", text, re.DOTALL)
        assert text.count("{{") == text.count("}}") == len(actions), path
        opened = sum(a.split()[0] in ("if", "with", "range", "define") for a in actions)
        assert opened == actions.count("end"), path
        for action in actions:
            assert action.count("(") == action.count(")") and action.count('"') % 2 == 0, action
            used |= set(re.findall(r"\.Values\.([\w.]+)", action))
        helpers = set(re.findall(r'include "([^"]+)"', text))
        assert helpers <= {"weft.name", "weft.selector", "weft.labels"}, helpers
    for name in used:
        value = values
        for part in name.split("."):
            assert part in value, f"values.yaml has no {name}"
            value = value[part]
    roots = {name.split(".")[0] for name in used}
    assert roots == set(values), f"not used, or not there: {roots ^ set(values)}"
    check_settings(values["settings"], values["terminationGracePeriodSeconds"])


def test_the_other_files_are_yaml():
    (envoy,) = judge("yaml", os.path.join(DEPLOY, "envoy/envoy.yaml"))
    (cluster,) = envoy["static_resources"]["clusters"]
    assert cluster["health_checks"][0]["http_health_check"]["path"] == "/health"
    assert len(judge("yaml", *glob.glob(f"{DEPLOY}/prometheus/*.yml"))) == 2


if __name__ == "__main__":
    harness.main()
