"""Validates the chart and the manifests that are generated from it, without a cluster.

The chart is rendered with the values of each case, by `helm` where it is installed and else by render.go. Every object is
validated against the schema of its kind, strictly, and every pod against the restricted pod security standard. What
`kubectl kustomize` builds is validated likewise. The generated files are compared with what the chart renders now;
`--write` writes them.
"""

import copy
import json
import pathlib
import shutil
import subprocess
import sys

import kubernetes_validate
import yaml

HERE = pathlib.Path(__file__).resolve().parent
KUBERNETES = HERE.parent
CHART = KUBERNETES / "chart"
VERSIONS = ["1.29", "1.32", "1.34"]
NOTE = "# Generated from the chart by `make kubernetes`; change the chart, or patch this in an overlay.\n"
# Kinds of other projects, for which Kubernetes has no schema: the members that they must have.
OTHERS = {
    "HTTPRoute": ["parentRefs", "hostnames", "rules"],
    "ServiceMonitor": ["selector", "endpoints"],
}

METRICS = {"metricsToken": {"name": "waggle", "key": "metrics-token"}}
CASES = {
    "defaults": {},
    "ingress": {
        "ingress": {"enabled": True, "tlsSecret": "mcp-tls"},
        "serviceMonitor": {"enabled": True},
        "secrets": METRICS,
    },
    "gateway": {"gateway": {"enabled": True}},
    "statefulset": {"spill": {"type": "statefulset", "storageClassName": "fast"}},
    "everything": {
        "image": {"digest": "sha256:" + 64 * "0", "pullSecrets": ["registry"]},
        "server": {
            "publicUrl": "https://mcp.example.com",
            "allowedHosts": ["mcp.example.com", "mcp.example.org"],
            "trustedProxies": ["10.0.0.0/8"],
        },
        "config": "[cache]\nwarm_agents = 100\n",
        "secrets": {**METRICS, "sourcesKeys": {"name": "waggle", "key": "sources-keys"}},
        "migration": {"enabled": True},
        "podLabels": {"team": "platform"},
        "podAnnotations": {"note": "a"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "mcp", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "service": {"annotations": {"a": "b"}},
        "ingress": {"enabled": True},
        "gateway": {"enabled": True},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "spill": {"type": "statefulset"},
    },
    "nothing": {
        "replicas": 1,
        "autoscaling": {"enabled": False},
        "disruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
}


def merged(values, given):
    """Values with those of a case, as Helm merges them."""
    values = copy.deepcopy(values)
    for key, value in given.items():
        if key not in values:
            raise SystemExit(f"the chart has no value {key}")
        both = isinstance(value, dict) and isinstance(values[key], dict) and values[key] != {}
        values[key] = merged(values[key], value) if both else value
    return values


def render(given):
    """The objects that the chart renders with these values."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    if shutil.which("helm"):
        command = ["helm", "template", "waggle", str(CHART), "--values", "-", "--no-hooks=false"]
        text = yaml.safe_dump(given)
    else:
        values = merged(yaml.safe_load((CHART / "values.yaml").read_text()), given)
        release = {"Name": "waggle", "Service": "Helm", "Namespace": "default"}
        about = {"AppVersion": chart["appVersion"], "Name": chart["name"], "Version": chart["version"]}
        objects = {"Values": values, "Release": release, "Chart": about}
        command = ["go", "run", str(HERE / "render.go"), str(CHART), json.dumps(objects)]
        text = None
    output = subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.PIPE).stdout
    return [document for document in yaml.safe_load_all(output) if document]


def validate(where, objects):
    """Validates objects against their schemas, and their pods against the restricted standard."""
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    if len(set(names)) != len(names):
        raise SystemExit(f"{where}: an object is there twice: {names}")
    for one in objects:
        if one["kind"] in OTHERS:
            missing = [member for member in OTHERS[one["kind"]] if not one["spec"].get(member)]
            if missing:
                raise SystemExit(f"{where}: {one['kind']} without {missing}")
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(one, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                raise SystemExit(f"{where}: {one['kind']} {one['metadata']['name']} at {version}: {error.message}")
        template = one.get("spec", {}).get("template")
        if template:
            restricted(where, template["spec"])
    print(f"{where}: {len(objects)} objects are valid at {', '.join(VERSIONS)}")


def restricted(where, pod):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    context = pod["securityContext"]
    rules = {
        "not root": context.get("runAsNonRoot") is True and context.get("runAsUser") != 0,
        "seccomp": context.get("seccompProfile", {}).get("type") == "RuntimeDefault",
        "no host": not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")),
        "volumes": all(
            set(volume) - {"name"} <= {"configMap", "projected", "emptyDir", "secret", "ephemeral"}
            for volume in pod.get("volumes", [])
        ),
    }
    for container in pod["containers"]:
        own = container["securityContext"]
        rules["no escalation"] = own.get("allowPrivilegeEscalation") is False
        rules["no capabilities"] = own.get("capabilities") == {"drop": ["ALL"]}
        rules["read-only root"] = own.get("readOnlyRootFilesystem") is True
    broken = [rule for rule, kept in rules.items() if not kept]
    if broken:
        raise SystemExit(f"{where}: not restricted: {broken}")


def drains(where, objects):
    """The pod is killed only after its gateway had the time to stop."""
    for pod in (one["spec"]["template"]["spec"] for one in objects if one["kind"] in ("Deployment", "StatefulSet")):
        [container] = pod["containers"]
        variables = {one["name"]: one.get("value") for one in container["env"]}
        [_, sleep] = container["lifecycle"]["preStop"]["exec"]["command"]
        stop = int(sleep) + sum(
            int(variables[f"WAGGLE_SERVER__{name}_SECONDS"]) for name in ("DRAIN", "SHUTDOWN")
        )
        if pod["terminationGracePeriodSeconds"] <= stop:
            raise SystemExit(f"{where}: a pod is killed after {pod['terminationGracePeriodSeconds']} s")


def generated(rendered):
    """The files that are generated from what the chart renders, by path."""
    def of_kind(case, *kinds):
        return [one for one in rendered[case] if one["kind"] in kinds]

    return {
        "base/waggle.yaml": rendered["defaults"],
        "overlays/production/ingress.yaml": of_kind("ingress", "Ingress"),
        "overlays/production/service-monitor.yaml": of_kind("ingress", "ServiceMonitor"),
        "overlays/gateway-api/route.yaml": of_kind("gateway", "HTTPRoute"),
        "overlays/statefulset/waggle.yaml": rendered["statefulset"],
    }


def dumped(objects):
    # Kustomize manages these, not Helm, which has an order of its own.
    objects = sorted(copy.deepcopy(objects), key=lambda one: (one["kind"], one["metadata"]["name"]))
    for one in objects:
        one["metadata"]["labels"].pop("app.kubernetes.io/managed-by")
    return NOTE + yaml.safe_dump_all(objects, sort_keys=False, width=110)


def main():
    if shutil.which("helm"):
        subprocess.run(["helm", "lint", "--strict", "--quiet", str(CHART)], check=True)
        version = subprocess.run(["helm", "version", "--template", "{{ .Version }}"], check=True, stdout=subprocess.PIPE, text=True)
        print(f"rendered by Helm {version.stdout.strip()}, whose lint finds nothing")
    rendered = {}
    for case, given in CASES.items():
        rendered[case] = render(given)
        validate(f"chart, {case}", rendered[case])
        drains(case, rendered[case])
    for path, objects in generated(rendered).items():
        file = KUBERNETES / path
        if "--write" in sys.argv:
            file.write_text(dumped(objects))
        elif not file.exists() or file.read_text() != dumped(objects):
            raise SystemExit(f"{file} is not what the chart renders; `make kubernetes` writes it")
    for overlay in ["base", *sorted(str(path.relative_to(KUBERNETES)) for path in KUBERNETES.glob("overlays/*"))]:
        command = ["kubectl", "kustomize", str(KUBERNETES / overlay)]
        output = subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE).stdout
        objects = list(yaml.safe_load_all(output))
        validate(f"kubectl kustomize {overlay}", objects)
        drains(overlay, objects)


main()
