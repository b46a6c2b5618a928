"""Gateways beside the API, in its pods, as the overlays have them: from the built image, with SQLite on the pod's disk,
or with PostgreSQL."""

import contextlib
import json

import pytest
from conftest import KUBECTL, ROOT, command, documents

from cluster.access import Credentials
from cluster.cluster import Cluster
from cluster.installation import NAMESPACE, until_ready
from cluster.network import OPEN, REFUSED, reach
from cluster.servers import PASSWORD, Postgres, wait_until
from cluster.traffic import Api, Worker, ask, assert_all_arrived_once
from cluster.volumes import claim

OVERLAYS = ROOT / "deploy/kustomize/overlays"
ACCOUNT = "/accounts/7/entries"


class Sidecar:
    """Pods of the StatefulSet, with the disk that outlives them. The API is the test's own, in the pod's network."""

    def __init__(self, image, overlay, directory, ending):
        directory.mkdir(exist_ok=True)
        self.cluster = Cluster(image, "fencegate:0.1.0", directory)
        ending.callback(self.cluster.close)
        self.cluster.namespace(NAMESPACE)
        self.cluster.namespace("monitoring")
        self.apis, self.ending = [], ending
        self.access = Credentials(image.binary)
        self.cluster.secrets.update(self.access.secret())
        self.worker_place = self.cluster.other(NAMESPACE, app="worker")
        rest = self.cluster.apply(documents(command(KUBECTL, "kustomize", OVERLAYS / overlay)), NAMESPACE)
        self.workload = rest["StatefulSet"]["spec"]
        self.service = self.cluster.services[0][0]
        group = self.workload["template"]["spec"]["securityContext"]["fsGroup"]
        self.claims = {volume["metadata"]["name"]: claim(group, directory / volume["metadata"]["name"])
                       for volume in self.workload.get("volumeClaimTemplates", [])}

    def pod(self):
        pod = self.cluster.run(self.workload["template"], NAMESPACE, claims=self.claims, stand_ins={"api": self._api})
        until_ready(pod)
        return pod

    def _api(self, pod):
        self.apis.append(Api(pod.namespace))
        self.ending.callback(self.apis[-1].close)

    def acquire(self, owner):
        lease = json.dumps({"owner": owner, "ttl_ms": 60000})
        status, text = ask(self.worker_place, (self.service, 8081), "POST", "/v1/leases/account%3A7", lease,
                           self.access.bearer())
        assert status == 201, text
        return json.loads(text)["token"]

    def write(self, token, address=None):
        return ask(self.worker_place, (address or self.service, 8080), "PUT", ACCOUNT, "x", {"Fencing-Token": token})

    def release(self, owner, token):
        path = f"/v1/leases/account%3A7?owner={owner}&token={token}"
        status, text = ask(self.worker_place, (self.service, 8081), "DELETE", path, headers=self.access.bearer())
        assert status == 204, text


@pytest.fixture(scope="module")
def sidecar(image, place):
    with contextlib.ExitStack() as ending:
        yield Sidecar(image, "sidecar", place, ending)


def test_it_fences_the_api_of_its_pod_and_remembers_on_the_pod_s_disk(sidecar):
    assert sidecar.workload["replicas"] == 1, "one gateway to a file"
    pod = sidecar.pod()
    first = sidecar.acquire("a")
    assert sidecar.write(first)[0] == 200
    sidecar.release("a", first)
    second = sidecar.acquire("b")
    assert sidecar.write(second)[0] == 200
    assert pod.terminate(propagation=1) == {"fencegate": 0}, pod.log()
    pod.remove()

    sidecar.pod()
    status, text = sidecar.write(first)
    assert status == 412 and json.loads(text)["highest_token"] == second
    assert sidecar.write(second)[0] == 200
    assert [token for api in sidecar.apis for _, token, _ in api.seen] == [first, second, second]


def test_the_api_s_own_port_is_closed_to_all_others(sidecar):
    pod = next(pod for pod in sidecar.cluster.pods if pod.is_served)
    # It listens on every address of its pod.
    assert reach(pod.namespace, pod.address, 9000) == OPEN
    assert reach(sidecar.worker_place, pod.address, 9000) == REFUSED
    assert reach(sidecar.worker_place, pod.address, 8080) == OPEN
    assert reach(sidecar.worker_place, pod.address, 8081) == OPEN
    assert reach(sidecar.worker_place, pod.address, 9090) == REFUSED


def test_term_under_load_loses_no_accepted_write(sidecar):
    pod = next(pod for pod in sidecar.cluster.pods if pod.is_served)
    before = len(sidecar.apis[-1].seen)
    workers = [Worker(sidecar.worker_place, sidecar.service, f"{n}", sidecar.access.bearer()) for n in range(6)]
    for worker in workers:
        worker.resource = f"/accounts/load-{worker.name}/entries"
        worker.lease = f"account:load-{worker.name}"
        worker.start()
    wait_until("every worker writes", lambda: all(len(worker.told) >= 5 for worker in workers))
    assert pod.terminate(propagation=2) == {"fencegate": 0}, pod.log()
    for worker in workers:
        worker.stop()
    # With one pod there is nobody else: what came after its end was not accepted. All before was answered.
    for worker in workers:
        refused = [told for told in worker.told if told[0] != 200]
        assert len(refused) <= 1 and all(status == "failed" for status, _, _ in refused), refused
        worker.told = [told for told in worker.told if told[0] == 200]
        assert len(worker.told) >= 5
    assert_all_arrived_once(sidecar.apis[-1].seen[before:], workers)
    assert "all grants were given back" in pod.log()


def test_the_pods_of_an_api_share_their_fences_in_a_database(image, place):
    with contextlib.ExitStack() as ending:
        sidecar = Sidecar(image, "sidecar-postgres", place / "second", ending)
        assert sidecar.workload["replicas"] > 1 and not sidecar.claims
        database = sidecar.cluster.other(NAMESPACE, app="postgres")
        ending.callback(Postgres(database, place / "second/postgres").stop)
        sidecar.cluster.alias("postgres", NAMESPACE, database.address)
        sidecar.cluster.secrets["fencegate-database"] = {"password": PASSWORD}
        one, other = sidecar.pod(), sidecar.pod()
        first = sidecar.acquire("a")
        assert sidecar.write(first, one.address)[0] == 200
        sidecar.release("a", first)
        second = sidecar.acquire("b")
        assert sidecar.write(second, other.address)[0] == 200
        status, text = sidecar.write(first, one.address)
        assert status == 412 and json.loads(text)["highest_token"] == second
        assert [[token for _, token, _ in api.seen] for api in sidecar.apis] == [[first], [second]]
