"""The rendered Deployment really runs, from the built image, with its own security context, environment, mounts,
memory limit and probes, on real PostgreSQL and etcd."""

import collections
import contextlib
import time

import pytest
from conftest import CASES, documents, helm_template

from cluster.access import Credentials
from cluster.installation import NAMESPACE, Installation
from cluster.network import OPEN, REFUSED, reach
from cluster.servers import wait_until
from cluster.traffic import Worker, ask, assert_all_arrived_once


@pytest.fixture(scope="module")
def installed(image, place):
    with contextlib.ExitStack() as ending:
        yield Installation(image, documents(helm_template("--values", CASES / "shared.yaml")), place, ending)


def test_gateways_wait_for_the_migration_job(installed):
    early = installed.cluster.run(installed.template, NAMESPACE)
    wait_until("a gateway without its schema ends", lambda: early.exit_code() is not None)
    assert early.exit_code() == 69 and "fencegate migrate" in early.log(), early.log()
    early.remove()

    job = installed.migrate()
    assert job.exit_code() == 0, job.log()
    assert "the schema is up to date now" in job.log()
    assert installed.postgres.sql("SELECT count(*) FROM fences", "fencegate") == "0"
    # Again, as every upgrade does.
    assert installed.migrate().exit_code() == 0

    installed.gateway()


def test_a_rolling_update_under_load_fails_no_write_and_loses_none(installed):
    old = [pod for pod in installed.cluster.pods if pod.is_served] + [installed.gateway()]
    before = len(installed.api.seen)
    workers = [Worker(installed.worker_place, installed.service, f"{n}", installed.access.bearer())
               for n in range(12)]
    for worker in workers:
        worker.start()
    wait_until("every worker writes", lambda: all(len(worker.told) >= 3 for worker in workers))
    for pod in old:
        installed.gateway()
        # The network takes its time to hear that a pod is going.
        assert pod.terminate(propagation=2) == {"fencegate": 0}, pod.log()
        assert "all grants were given back" in pod.log()
    time.sleep(1)
    for worker in workers:
        worker.stop()
    statuses = collections.Counter(status for worker in workers for status, _, _ in worker.told)
    assert set(statuses) == {200}, [told for worker in workers for told in worker.told if told[0] != 200][:5]
    assert statuses[200] > 100, "too little happened"
    assert_all_arrived_once(installed.api.seen[before:], workers)
    for pod in old:
        assert pod.exit_code() == 0 and pod.failure is None
        pod.remove()


def test_nothing_of_a_container_can_be_written_and_no_privilege_is_left(installed):
    pod = next(pod for pod in installed.cluster.pods if pod.is_served)
    with open(f"/proc/{pod.gateway.pid()}/status", encoding="ascii") as file:
        status = dict(line.strip().split(":\t", 1) for line in file if ":\t" in line)
    assert status["Uid"].split() == ["65532"] * 4
    assert {status[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    with open(f"/proc/{pod.gateway.pid()}/mounts", encoding="ascii") as file:
        mounts = [line.split() for line in file]
    # /dev and what is masked in /proc are the runtime's.
    writable = {at for _, at, _, options, *_ in mounts if "ro" not in options.split(",")}
    assert not {at for at in writable if not at.startswith(("/proc", "/dev"))}, writable


def test_only_the_gateways_reach_the_api(installed):
    cluster = installed.cluster
    gateway = next(pod for pod in cluster.pods if pod.is_served)
    monitoring = cluster.other("monitoring", app="prometheus")
    neighbour = cluster.other(NAMESPACE, app="something")
    impostor = cluster.other("elsewhere", fencegate="fencegate")
    api, api_port = installed.api_place.address, 9000
    for place in (installed.worker_place, monitoring, neighbour, impostor):
        assert reach(place, api, api_port) == REFUSED
        assert reach(place, installed.service, 8080) == OPEN
        assert reach(place, gateway.address, 8080) == OPEN
        assert reach(place, gateway.address, 8081) == OPEN
    assert reach(gateway.namespace, api, api_port) == OPEN
    # Through the gateway they do reach it.
    status, _ = ask(installed.worker_place, (installed.service, 8080), "GET", "/files/x")
    assert status == 200 and installed.api.seen[-1][0] == "/files/x"
    # Metrics and fences are for monitoring alone.
    assert reach(monitoring, gateway.address, 9090) == OPEN
    for place in (installed.worker_place, neighbour, impostor):
        assert reach(place, gateway.address, 9090) == REFUSED
    # Whoever gets there is asked who they are, but for metrics and health.
    for place, port, path, known, status in (
            (installed.worker_place, 8081, "/v1/leases/x", {}, 401),
            (installed.worker_place, 8081, "/v1/leases/x", installed.access.bearer("operator"), 403),
            (monitoring, 9090, "/v1/fences", {}, 401),
            (monitoring, 9090, "/v1/fences", installed.access.bearer("worker"), 403),
            (monitoring, 9090, "/v1/fences", installed.access.bearer("operator"), 200),
            (monitoring, 9090, "/metrics", {}, 200)):
        assert ask(place, (gateway.address, port), "GET", path, headers=known)[0] == status, (path, known)
    # Without the policies all of it is open: it is they that close it.
    policies, cluster.policies[:] = list(cluster.policies), []
    cluster.other("elsewhere")
    assert reach(installed.worker_place, api, api_port) == OPEN
    assert reach(installed.worker_place, gateway.address, 9090) == OPEN
    cluster.policies[:] = policies
    cluster.other("elsewhere")
    assert reach(installed.worker_place, api, api_port) == REFUSED


def test_running_gateways_follow_a_new_secret(image, installed):
    cluster = installed.cluster
    gateway = next(pod for pod in cluster.pods if pod.is_served)
    monitoring = cluster.other("monitoring", app="prometheus")
    old, new = installed.access, Credentials(image.binary)

    def status_of(access):
        return ask(monitoring, (gateway.address, 9090), "GET", "/v1/fences", headers=access.bearer("operator"))[0]
    assert (status_of(old), status_of(new)) == (200, 401)
    cluster.secrets.update(new.secret())
    gateway.lay_out_volumes()
    wait_until("the new tokens are known", lambda: status_of(new) == 200)
    assert status_of(old) == 401
    assert gateway.exit_code() is None and gateway.failure is None
    installed.access = new
