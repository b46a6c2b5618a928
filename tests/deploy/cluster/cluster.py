"""A cluster of one node, as far as it takes to run what the chart renders: pods of one image, services, policies."""

import itertools
import threading

from . import rules
from .names import Names
from .network import Network
from .pod import Pod


class Cluster:
    def __init__(self, image, image_name, directory):
        self.image, self.image_name, self.directory = image, image_name, directory
        self.network = Network()
        self.names = Names(self.network.node)
        self.configs, self.secrets, self.policies = {}, {}, []
        self.namespaces = {}
        self.pods, self.others, self.services = [], [], []
        self._service_numbers, self._pod_numbers = itertools.count(1), itertools.count(1)
        self._changing = threading.Lock()

    def namespace(self, name, **labels):
        self.namespaces[name] = {"kubernetes.io/metadata.name": name, **labels}

    def apply(self, documents, namespace):
        """Takes in what needs no pod of its own. Answers the rest by kind."""
        rest = {}
        for document in documents:
            kind, name = document["kind"], document["metadata"]["name"]
            document["metadata"].setdefault("namespace", namespace)
            if kind == "ConfigMap":
                self.configs[name] = document["data"]
            elif kind == "NetworkPolicy":
                self.policies.append(document)
            elif kind == "Service":
                self.service(document, namespace)
            else:
                rest[kind] = document
        self._policies_changed()
        return rest

    def other(self, namespace, **labels):
        """A pod that is not ours: a place in the network with labels."""
        place = self.network.pod()
        self.others.append({"address": place.address, "labels": labels, "namespace": namespace, "ports": {}})
        self._policies_changed()
        return place

    def alias(self, name, namespace, address):
        """A service without a selector: a name for an address."""
        self.names.known[f"{name}.{namespace}.svc.cluster.local"] = address

    def service(self, document, namespace):
        address = f"10.78.0.{next(self._service_numbers)}"
        self.services.append((address, document["spec"]))
        self.alias(document["metadata"]["name"], namespace, address)

    def run(self, template, namespace, **parts):
        pod = Pod(self, f"pod-{next(self._pod_numbers)}", namespace, template, **parts)
        self.pods.append(pod)
        self._policies_changed()
        return pod

    def endpoints_changed(self):
        with self._changing:
            endpoints = {}
            for address, spec in self.services:
                ready = [pod for pod in self.pods if pod.is_ready and not pod.removed.is_set()
                         and rules.matches({"matchLabels": spec["selector"]}, pod.labels)]
                for port in spec["ports"]:
                    target = port["targetPort"]
                    endpoints[address, port["port"]] = [
                        (pod.address, target if isinstance(target, int) else pod.ports[target]) for pod in ready]
            self.network.rules(rules.services(endpoints))

    def _policies_changed(self):
        ours = [{"address": pod.address, "labels": pod.labels, "namespace": pod.namespace_name, "ports": pod.ports}
                for pod in self.pods]
        self.network.rules(rules.policies(self.policies, ours + self.others, self.namespaces))

    def close(self):
        for pod in self.pods:
            pod.remove()
        self.names.close()
        self.network.delete()
