"""What protects the ports in deploy/, and the Ingress of examples/: names, certificates and rights fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.deploy.kustomize import Key, Manifest, documents, render
from tests.deploy.rbac import grants
from tests.deploy.test_manifests import BASE, NAMESPACE, ROOT, granted, one, overlay_of, pod_of
from vcd.daemon.http.security import METRICS
from vcd.daemon.options import Options, parse_options

INGRESS = ROOT / "examples" / "ingress"
REVIEWS = {
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
}


@pytest.fixture
def metrics(tmp_path: Path) -> dict[Key, Manifest]:
    """The base with the metrics for token holders, and the ServiceMonitor."""
    return render(overlay_of(tmp_path, "servicemonitor", "metrics-for-token-holders"))


def options_of(rendered: dict[Key, Manifest]) -> Options:
    """What the container's environment comes to."""
    (container,) = pod_of(rendered)["spec"]["containers"]
    return parse_options({}, {each["name"]: each["value"] for each in container["env"] if "value" in each})


def mounted(rendered: dict[Key, Manifest]) -> tuple[str, str]:
    """The Secret of the certificate, and where it is mounted."""
    spec = pod_of(rendered)["spec"]
    (secret,) = [volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume]
    (path,) = [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == "tls"]
    return secret, path


def review_rights(rendered: dict[Key, Manifest]) -> set[tuple[str, str, str]]:
    added = grants(rendered.values(), "vcd-scheduler", NAMESPACE) - granted(BASE)
    return {(grant.verb, grant.group, grant.resource) for grant in added}


def test_metrics_for_token_holders_ask_for_a_token_by_tls(metrics: dict[Key, Manifest]) -> None:
    options, (_, path) = options_of(metrics), mounted(metrics)
    assert (options.metrics_secure, options.metrics_require_token) == (True, True)
    assert (options.tls_cert_file, options.tls_private_key_file) == (Path(path, "tls.crt"), Path(path, "tls.key"))
    assert review_rights(metrics) == REVIEWS


def test_prometheus_is_told_how_to_ask(metrics: dict[Key, Manifest]) -> None:
    (endpoint,) = one(metrics, "ServiceMonitor")["spec"]["endpoints"]
    service = metrics["Service", NAMESPACE, "vcd-scheduler"]
    assert (endpoint["scheme"], endpoint["port"]) == ("https", service["spec"]["ports"][0]["name"])
    names = [each["spec"]["dnsNames"] for each in documents(INGRESS / "certificate.yaml")]
    assert [found for found in names if endpoint["tlsConfig"]["serverName"] in found] == [names[1]]
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == mounted(metrics)[0]
    assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    # who sends no token is not to try
    assert service["metadata"]["annotations"]["prometheus.io/scrape"] == "false"


def test_the_role_for_scrapers_is_what_is_asked_for(metrics: dict[Key, Manifest]) -> None:
    rules = metrics["ClusterRole", "", "vcd-metrics-reader"]["rules"]
    assert rules == [{"nonResourceURLs": [METRICS.path], "verbs": [METRICS.verb]}]


def test_page_and_metrics_for_token_holders_go_together(tmp_path: Path) -> None:
    rendered = render(overlay_of(tmp_path, "page-for-token-holders", "metrics-for-token-holders"))
    assert review_rights(rendered) == REVIEWS
    options = options_of(rendered)
    assert (options.view_address, options.metrics_require_token) == (":8090", True)


@pytest.fixture
def ingress() -> dict[Key, Manifest]:
    """The example."""
    return render(INGRESS)


def test_the_ingress_leads_to_the_page(ingress: dict[Key, Manifest]) -> None:
    spec = one(ingress, "Ingress")["spec"]
    (rule,) = spec["rules"]
    (path,) = rule["http"]["paths"]
    backend: Any = path["backend"]["service"]
    service = ingress["Service", NAMESPACE, backend["name"]]
    (port,) = [each for each in service["spec"]["ports"] if each["name"] == backend["port"]["name"]]
    (container,) = pod_of(ingress)["spec"]["containers"]
    (served,) = [each for each in container["ports"] if each["name"] == port["targetPort"]]
    options = options_of(ingress)
    assert options.view_address == f":{served['containerPort']}"
    assert options.page_hosts == (rule["host"],)
    assert service["spec"]["selector"].items() <= pod_of(ingress)["metadata"]["labels"].items()


def test_the_ingress_has_tls_on_both_sides(ingress: dict[Key, Manifest]) -> None:
    (tls,) = one(ingress, "Ingress")["spec"]["tls"]
    certificates = {
        manifest["spec"]["secretName"]: manifest["spec"]["dnsNames"]
        for (kind, _, _), manifest in ingress.items()
        if kind == "Certificate"
    }
    secret, path = mounted(ingress)
    assert certificates[tls["secretName"]] == tls["hosts"]
    assert f"vcd-scheduler-page.{NAMESPACE}.svc" in certificates[secret]
    assert options_of(ingress).tls_cert_file == Path(path, "tls.crt")
    annotations = one(ingress, "Ingress")["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"
