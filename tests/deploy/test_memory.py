"""The chart's memory limit, from a measurement: what active resources take of a gateway in a container with that limit.

What docs/installing.md says is measured with FENCEGATE_MEMORY_RESOURCES=100000; the ordinary run has a fifth of them,
and so finds a limit that is far off.
"""

import contextlib
import os

from conftest import CASES, documents, helm_template

from cluster.container import size
from cluster.installation import NAMESPACE, Installation
from cluster.traffic import QuickApi, write_many

RESOURCES = int(os.environ.get("FENCEGATE_MEMORY_RESOURCES", "20000"))
MIB = 1 << 20


def test_the_default_limit_has_room_for_active_resources(image, place):
    with contextlib.ExitStack() as ending:
        rendered = documents(helm_template("--values", CASES / "shared.yaml"))
        installed = Installation(image, rendered, place, ending)
        quick = installed.cluster.other(NAMESPACE, app="ledger")
        QuickApi.serve(quick, 9000)
        installed.cluster.alias("ledger", NAMESPACE, quick.address)
        assert installed.migrate().exit_code() == 0
        pod = installed.gateway()
        idle, _ = pod.gateway.memory()

        paths = (f"/imports/{n}" for n in range(RESOURCES))
        told = write_many(installed.worker_place, (pod.address, 8080), paths, connections=200)
        full, resident = pod.gateway.memory()

        assert told == {200: RESOURCES}
        assert installed.postgres.sql("SELECT count(*) FROM fences", "fencegate") == str(RESOURCES)
        limit = size(installed.template["spec"]["containers"][0]["resources"]["limits"]["memory"])
        print(f"idle {idle / MIB:.0f} MiB, with {RESOURCES} active resources {full / MIB:.0f} MiB "
              f"({resident / MIB:.0f} MiB of them the process's), limit {limit / MIB:.0f} MiB")
        # As much again is for limits.cells, twice 100,000, and the rest for connections and bodies that are
        # buffered, see docs/installing.md.
        assert full <= limit / 2, "raise resources.limits.memory in values.yaml"
        assert pod.exit_code() is None and pod.failure is None
        assert pod.terminate(propagation=0) == {"fencegate": 0}, pod.log()
