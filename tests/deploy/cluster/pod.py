"""A pod: its network, its volumes, its containers, and the probes that the kubelet makes."""

import http.client
import signal
import threading
import time

from .container import Container
from .rules import known
from .volumes import lay_out

POD = {"serviceAccountName", "automountServiceAccountToken", "enableServiceLinks", "restartPolicy", "priorityClassName",
       "terminationGracePeriodSeconds", "securityContext", "containers", "volumes", "topologySpreadConstraints"}
PROBE = {"httpGet", "periodSeconds", "timeoutSeconds", "failureThreshold"}


class Pod:
    """Runs from construction on. `stand_ins` runs containers of images that are not ours: {name: function of the pod}."""

    def __init__(self, cluster, name, namespace, template, claims=None, stand_ins=None):
        self.cluster, self.name, self.spec = cluster, name, template["spec"]
        self.labels, self.namespace_name = template["metadata"]["labels"], namespace
        known(self.spec, POD)
        # A gateway would take variables about services for settings, and has no use for a token.
        assert not self.spec["enableServiceLinks"] and not self.spec["automountServiceAccountToken"]
        self.namespace = cluster.network.pod()
        self.address = self.namespace.address
        self.ports = {port["name"]: port["containerPort"]
                      for container in self.spec["containers"] for port in container.get("ports", [])}
        # Served: the service leads here, some moments after it is ready.
        self.is_ready = self.is_served = False
        self.failure, self.removed = None, threading.Event()
        self.directory = directory = cluster.directory / name
        files = self._files(directory, claims or {})
        self.containers = {}
        for spec in self.spec["containers"]:
            if spec["name"] in (stand_ins or {}):
                stand_ins[spec["name"]](self)
            else:
                pod = {"namespace": self.namespace, "securityContext": self.spec["securityContext"]}
                assert spec["image"] == cluster.image_name, spec["image"]
                place = directory / "containers" / spec["name"]
                self.containers[spec["name"]] = Container(spec, pod, cluster.image, files, place)
        self.gateway = next(iter(self.containers.values()), None)
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def lay_out_volumes(self):
        """Answers their directories by name. Again when a Secret or a ConfigMap has changed, as the kubelet does."""
        group = self.spec["securityContext"]["fsGroup"]
        return {volume["name"]: lay_out(volume, group, self.cluster.configs, self.cluster.secrets,
                                        self.directory / "volumes" / volume["name"])
                for volume in self.spec.get("volumes", [])}

    def _files(self, directory, claims):
        directory.mkdir(parents=True)
        files = {**self.lay_out_volumes(), **claims}
        search = f"{self.namespace_name}.svc.cluster.local svc.cluster.local cluster.local"
        texts = {
            "/etc/resolv.conf": f"nameserver {self.cluster.network.node.address}\nsearch {search}\noptions ndots:5\n",
            "/etc/hosts": f"127.0.0.1 localhost\n::1 localhost\n{self.address} {self.name}\n",
        }
        for path, text in texts.items():
            files[path] = directory / path.rsplit("/", 1)[1]
            files[path].write_text(text)
        return files

    def _watch(self):
        """Startup first; then readiness, and liveness, whose failure is the pod's."""
        for spec in self.spec["containers"]:
            if "startupProbe" in spec and spec["name"] in self.containers:
                self._probe_container(spec)

    def _probe_container(self, spec):
        startup, live, ready = (Probe(self, spec[kind]) for kind in ("startupProbe", "livenessProbe", "readinessProbe"))
        while not startup.succeeded:
            if self.removed.wait(startup.wait()):
                return
            startup.look()
            if startup.has_failed:
                self.failure = "the startup probe failed"
                return
        while not self.removed.wait(min(live.wait(), ready.wait())):
            if ready.wait() == 0:
                ready.look()
                is_ready = ready.succeeded if ready.is_decided else self.is_ready
                if is_ready != self.is_ready:
                    self.is_ready = is_ready
                    self.cluster.endpoints_changed()
                    self.is_served = is_ready
            if live.wait() == 0:
                live.look()
                if live.has_failed and not self.removed.is_set():
                    self.failure = "the liveness probe failed"
                    return

    def log(self):
        return "".join(container.log() for container in self.containers.values())

    def exit_code(self):
        return self.gateway.exit_code()

    def terminate(self, propagation):
        """As deleting a pod does it: TERM at once, while the endpoints take `propagation` seconds to be told.

        Answers what the containers ended with within the grace period.
        """
        for container in self.containers.values():
            container.signal(signal.SIGTERM)
        deadline = time.monotonic() + self.spec["terminationGracePeriodSeconds"]
        time.sleep(propagation)
        self.is_ready = self.is_served = False
        self.removed.set()
        self.cluster.endpoints_changed()
        codes = {}
        for name, container in self.containers.items():
            codes[name] = container.process.wait(timeout=max(0, deadline - time.monotonic()))
        return codes

    def remove(self):
        self.removed.set()
        self._watching.join(timeout=30)
        for container in self.containers.values():
            container.remove()


class Probe:
    """One probe, made from the node at its own pace."""

    def __init__(self, pod, spec):
        known(spec, PROBE)
        known(spec["httpGet"], {"path", "port", "scheme"})
        assert spec["httpGet"].get("scheme", "HTTP") == "HTTP"
        self.pod, self.spec = pod, spec
        self.port = pod.ports[spec["httpGet"]["port"]]
        self.next, self.failures, self.succeeded, self.is_decided = time.monotonic(), 0, False, False

    def wait(self):
        return max(0, self.next - time.monotonic())

    @property
    def has_failed(self):
        return self.failures >= self.spec.get("failureThreshold", 3)

    def look(self):
        self.next = time.monotonic() + self.spec.get("periodSeconds", 10)
        if self._asks():
            self.succeeded, self.failures, self.is_decided = True, 0, True
        else:
            self.failures += 1
            if self.has_failed:
                self.succeeded, self.is_decided = False, True

    def _asks(self):
        timeout = self.spec.get("timeoutSeconds", 1)
        try:
            connection = http.client.HTTPConnection(self.pod.address, self.port)
            connection.sock = self.pod.cluster.network.node.connect((self.pod.address, self.port), timeout)
            connection.request("GET", self.spec["httpGet"]["path"])
            answer = connection.getresponse()
            answer.read()
            connection.close()
            return 200 <= answer.status < 400
        except OSError:
            return False
