"""What no schema sees: whether the parts of a render fit together, with each other and with the gateway."""

import os
import subprocess

import pytest
import yaml
from conftest import CASES, CHART, KUBECTL, ROOT, command, documents, helm_template

from cluster.access import Credentials
from cluster.rules import matches

KUSTOMIZE = ROOT / "deploy/kustomize"
# What a gateway takes at the most after its grace is over, to answer the last clients and to leave its store.
LAST_ANSWERS = 20


def renders():
    for case in ("shared", "everything"):
        yield f"helm-{case}", lambda case=case: documents(helm_template("--values", CASES / f"{case}.yaml"))
    for overlay in sorted(path.name for path in (KUSTOMIZE / "overlays").iterdir()):
        yield f"kustomize-{overlay}", lambda overlay=overlay: documents(
            command(KUBECTL, "kustomize", KUSTOMIZE / "overlays" / overlay))


RENDERS = dict(renders())


@pytest.fixture(params=RENDERS, scope="module")
def rendered(request):
    return RENDERS[request.param]()


def of_kind(rendered, *kinds):
    return [document for document in rendered if document["kind"] in kinds]


def workload(rendered):
    """The one that runs gateways."""
    found, = (document for document in of_kind(rendered, "Deployment", "StatefulSet") if gateway_of(document))
    return found


def gateway_of(document):
    containers = document["spec"]["template"]["spec"]["containers"]
    return next((container for container in containers if container["name"] == "fencegate"), None)


def pod_labels(document):
    return document["spec"]["template"]["metadata"]["labels"]


def port_names(document):
    return {port["name"] for container in document["spec"]["template"]["spec"]["containers"]
            for port in container.get("ports", [])}


def test_every_selector_selects_pods_of_a_workload(rendered):
    workloads = of_kind(rendered, "Deployment", "StatefulSet")
    everyone = [pod_labels(document) for document in workloads]
    # The API of the chart is somebody else's; its pods have the labels that the values name.
    everyone.append({"app": "ledger"})
    selectors = [document["spec"]["selector"] for document in
                 of_kind(rendered, "Deployment", "StatefulSet", "PodDisruptionBudget", "PodMonitor")]
    selectors += [{"matchLabels": document["spec"]["selector"]} for document in of_kind(rendered, "Service")]
    policies = of_kind(rendered, "NetworkPolicy")
    selectors += [policy["spec"]["podSelector"] for policy in policies]
    spread = workload(rendered)["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
    selectors += [constraint["labelSelector"] for constraint in spread]
    assert len(selectors) >= 4
    for selector in selectors:
        assert selector["matchLabels"], "an empty selector selects everybody"
        assert any(matches(selector, labels) for labels in everyone), selector


def test_gateways_are_under_a_policy_and_a_budget_and_have_a_service(rendered):
    labels = pod_labels(workload(rendered))
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        key = "podSelector" if kind == "NetworkPolicy" else "selector"
        assert any(matches(document["spec"][key], labels) for document in of_kind(rendered, kind)), kind
    services = of_kind(rendered, "Service")
    assert any(matches({"matchLabels": service["spec"]["selector"]}, labels) for service in services)
    # A selector is for ever, and labels like the version change.
    assert set(workload(rendered)["spec"]["selector"]["matchLabels"]) <= {"fencegate", "app"}


def test_a_job_is_no_member_of_the_service(rendered):
    for job in of_kind(rendered, "Job"):
        for service in of_kind(rendered, "Service"):
            assert not matches({"matchLabels": service["spec"]["selector"]}, pod_labels(job))


def test_every_named_port_exists(rendered):
    ports = port_names(workload(rendered))
    named = [port["targetPort"] for service in of_kind(rendered, "Service") for port in service["spec"]["ports"]]
    named += [endpoint["port"] for monitor in of_kind(rendered, "PodMonitor")
              for endpoint in monitor["spec"]["podMetricsEndpoints"]]
    own = workload(rendered)["metadata"]["name"]
    for policy in of_kind(rendered, "NetworkPolicy"):
        if matches(policy["spec"]["podSelector"], pod_labels(workload(rendered))):
            named += [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    gateway = gateway_of(workload(rendered))
    named += [gateway[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert len(named) >= 8, own
    assert set(named) <= ports, set(named) - ports


def test_probes_ask_for_what_they_mean(rendered):
    gateway = gateway_of(workload(rendered))
    asked = {probe: gateway[probe]["httpGet"]["path"] for probe in gateway if probe.endswith("Probe")}
    # Not ready is no reason to be killed: a gateway without its store comes back by itself.
    assert asked == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def test_the_scaled_workload_exists_and_has_no_number_of_its_own(rendered):
    for scaler in of_kind(rendered, "HorizontalPodAutoscaler"):
        target, = (document for document in rendered if document["kind"] == scaler["spec"]["scaleTargetRef"]["kind"]
                   and document["metadata"]["name"] == scaler["spec"]["scaleTargetRef"]["name"])
        assert "replicas" not in target["spec"]
        assert "cpu" in gateway_of(target)["resources"]["requests"], "the target is in percent of it"


def seconds(text):
    assert text.endswith("s") and text[:-1].isdigit(), text
    return int(text[:-1])


def environment(container):
    return {variable["name"]: variable["value"] for variable in container["env"]}


def test_the_grace_period_covers_the_drain(rendered):
    pod = workload(rendered)["spec"]["template"]["spec"]
    settings = environment(gateway_of(workload(rendered)))
    unready, grace = (seconds(settings[f"FENCEGATE_SHUTDOWN__{name}"]) for name in ("UNREADY", "GRACE"))
    assert unready >= 5, "the network takes some seconds to hear that a pod is going"
    drained = unready + grace + LAST_ANSWERS
    assert drained < pod["terminationGracePeriodSeconds"]
    for container in pod["containers"]:
        hook = container.get("lifecycle", {}).get("preStop")
        if container["name"] == "fencegate":
            # It goes on serving for `unready` by itself.
            assert hook is None
        else:
            # An API beside its gateway has to outlive it, so that what is in flight is answered.
            assert unready + grace <= hook["sleep"]["seconds"] < pod["terminationGracePeriodSeconds"]


def test_pods_keep_to_the_restricted_standard(rendered):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    pods = [document["spec"]["template"]["spec"] for document in of_kind(rendered, "Deployment", "StatefulSet", "Job")]
    assert pods
    for pod in pods:
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for volume in pod.get("volumes", []):
            assert set(volume) - {"name"} <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True and security["runAsUser"] > 0
        assert security["seccompProfile"]["type"] == "RuntimeDefault"
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True
            assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]
            assert not any("hostPort" in port for port in container.get("ports", []))


def test_no_secret_is_in_what_is_rendered(rendered):
    assert not of_kind(rendered, "Secret")
    for document in of_kind(rendered, "Deployment", "StatefulSet", "Job"):
        secrets = {volume["secret"]["secretName"] for volume in document["spec"]["template"]["spec"].get("volumes", [])
                   if "secret" in volume}
        assert {name for name in secrets if name.endswith("-access")}, "who may do what is in one of its own"
        assert len(secrets) > 1 or "sqlite" in yaml.safe_dump(rendered)


def test_every_mount_has_its_volume_and_every_configured_file_its_mount(rendered):
    for document in of_kind(rendered, "Deployment", "StatefulSet", "Job"):
        pod = document["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])}
        for container in pod["containers"]:
            mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", [])}
            assert set(mounts) <= volumes
            if container["name"] in ("fencegate", "migrate"):
                for name in named_files(config_text(rendered, pod), environment(container)):
                    assert name.rsplit("/", 1)[0] in mounts.values(), name


def named_files(text, settings):
    words = [word.strip('"') for line in text.splitlines() if "_file" in line for word in line.split()[-1:]]
    return words + [settings["FENCEGATE_ACCESS__CREDENTIALS"]]


def config_text(rendered, pod):
    name = next(volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"] == "config")
    found, = (document for document in of_kind(rendered, "ConfigMap") if document["metadata"]["name"] == name)
    return found["data"]["fencegate.toml"]


def test_the_gateway_takes_the_configuration_that_is_rendered(rendered, binary, tmp_path):
    for document in of_kind(rendered, "Deployment", "StatefulSet", "Job"):
        pod = document["spec"]["template"]["spec"]
        for container in pod["containers"]:
            if container["name"] in ("fencegate", "migrate"):
                check_config(binary, config_text(rendered, pod), environment(container), tmp_path)


def check_config(binary, text, settings, place):
    for name in named_files(text, settings):
        (place / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (place / name.lstrip("/")).write_text("something")
    credentials = place / settings["FENCEGATE_ACCESS__CREDENTIALS"].lstrip("/")
    credentials.write_text(Credentials(binary).file)
    file = place / "fencegate.toml"
    file.write_text(text.replace('"/run/', f'"{place}/run/'))
    assert settings["FENCEGATE_CONFIG"] == "/etc/fencegate/fencegate.toml"
    done = subprocess.run([binary, "config", "check"], capture_output=True, text=True, check=False,
                          env={**settings, "FENCEGATE_CONFIG": str(file),
                               "FENCEGATE_ACCESS__CREDENTIALS": str(credentials)})
    assert (done.returncode, done.stderr) == (0, "")


def test_listeners_and_ports_are_the_same(rendered):
    gateway = gateway_of(workload(rendered))
    settings = environment(gateway)
    ports = {port["name"]: port["containerPort"] for port in gateway["ports"]}
    for name, port in ports.items():
        assert settings[f"FENCEGATE_LISTEN__{name.upper()}"].endswith(f":{port}")


def test_the_images_are_the_same_everywhere(rendered):
    images = {container["image"] for document in of_kind(rendered, "Deployment", "StatefulSet", "Job")
              for container in document["spec"]["template"]["spec"]["containers"]
              if container["name"] in ("fencegate", "migrate")}
    assert len(images) == 1


def test_versions_are_the_package_s():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    cargo = (ROOT / "Cargo.toml").read_text()
    assert f'version = "{chart["version"]}"' in cargo and chart["appVersion"] == chart["version"]
