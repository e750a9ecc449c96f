"""The component by which replicas have one log: a port, a token that is of use for nothing else, and who may follow."""

from __future__ import annotations

from pathlib import Path

from tests.deploy.kustomize import render
from tests.deploy.rbac import grants
from tests.deploy.test_manifests import BASE, NAMESPACE, granted, overlay_of, pod_of
from vcd.daemon.options import parse_options
from vcd.daemon.replicas.replica_identity import AUDIENCE
from vcd.daemon.replicas.replica_protocol import PATH


def test_replicas_listen_and_show_a_token_for_vcd_alone(tmp_path: Path) -> None:
    rendered = render(overlay_of(tmp_path, "one-log"))
    spec = pod_of(rendered)["spec"]
    (container,) = spec["containers"]
    environment = {each["name"]: each.get("value", "") for each in container["env"]}
    options = parse_options({}, environment)
    port = int(options.replicas_address.rpartition(":")[2])
    assert port in {each["containerPort"] for each in container["ports"]}
    (volume,) = (each for each in spec["volumes"] if "projected" in each)
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == AUDIENCE
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == volume["name"])
    assert options.replicas_token_file == Path(mount["mountPath"]) / source["serviceAccountToken"]["path"]
    (address,) = (each for each in container["env"] if each["name"] == "POD_IP")
    assert address["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"


def test_replicas_may_review_and_follow(tmp_path: Path) -> None:
    rendered = render(overlay_of(tmp_path, "one-log"))
    added = grants(rendered.values(), "vcd-scheduler", NAMESPACE) - granted(BASE)
    assert {(grant.verb, grant.group, grant.resource) for grant in added} == {
        ("create", "authentication.k8s.io", "tokenreviews"),
        ("create", "authorization.k8s.io", "subjectaccessreviews"),
    }
    rules = rendered["ClusterRole", "", "vcd-scheduler-log"]["rules"]
    assert {"nonResourceURLs": [PATH], "verbs": ["get", "put"]} in rules
