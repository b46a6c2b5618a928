"""The shared gateways of the chart, installed: with the database, etcd, the API and workers that they need."""

from .access import Credentials
from .cluster import Cluster
from .servers import PASSWORD, Etcd, Postgres, wait_until
from .traffic import Api

NAMESPACE = "money"
SECRET = {"fencegate-database": {"password": PASSWORD + "\n"}}


class Installation:
    """What installing `rendered` makes, with the API, the database and etcd that it needs."""

    def __init__(self, image, rendered, directory, ending):
        self.cluster = Cluster(image, "fencegate:0.1.0", directory)
        ending.callback(self.cluster.close)
        self.cluster.namespace(NAMESPACE)
        self.cluster.namespace("monitoring")
        self.cluster.namespace("elsewhere")
        self.access = Credentials(image.binary)
        self.cluster.secrets.update(SECRET | self.access.secret())
        database = self.cluster.other(NAMESPACE, app="postgres")
        self.postgres = Postgres(database, directory / "postgres")
        ending.callback(self.postgres.stop)
        etcd = self.cluster.other(NAMESPACE, app="etcd")
        ending.callback(Etcd(etcd, directory / "etcd").stop)
        self.api_place = self.cluster.other(NAMESPACE, app="ledger")
        self.api = Api(self.api_place)
        ending.callback(self.api.close)
        self.worker_place = self.cluster.other("elsewhere", app="worker")
        for name, place in (("postgres", database), ("etcd", etcd), ("ledger", self.api_place)):
            self.cluster.alias(name, NAMESPACE, place.address)
        self.rest = self.cluster.apply(rendered, NAMESPACE)
        self.template = self.rest["Deployment"]["spec"]["template"]
        self.service = self.cluster.services[0][0]

    def migrate(self):
        job = self.cluster.run(self.rest["Job"]["spec"]["template"], NAMESPACE)
        wait_until("the migration ends", lambda: job.exit_code() is not None)
        return job

    def gateway(self):
        pod = self.cluster.run(self.template, NAMESPACE)
        until_ready(pod)
        return pod


def until_ready(pod):
    def is_ready():
        assert pod.exit_code() is None and pod.failure is None, f"{pod.failure}\n{pod.log()}"
        return pod.is_served
    wait_until("the gateway is ready", is_ready)
