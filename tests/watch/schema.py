"""Finds what Grafana's schema does not have: reads each dashboard into the types that Grafana publishes for its own
format (grafana-foundation-sdk), writes it again, and compares."""

import json
import re
import sys

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

#: What the Prometheus data source reads of an annotation, and the published types leave out.
OF_THE_DATA_SOURCE = re.compile(r"/annotations/list/\d+/(titleFormat|textFormat|step)")


def differences(before, after, path=""):
    """Paths of what is not the same, or not there, afterwards."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from differences(value, after[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (one, other) in enumerate(zip(before, after)):
            yield from differences(one, other, f"{path}/{at}")
    elif before != after:
        yield path


def main():
    plugins.register_default_plugins()
    unknown = []
    for file in sys.argv[1:]:
        with open(file) as text:
            before = json.load(text)
        after = json.loads(json.dumps(Dashboard.from_json(before), cls=JSONEncoder))
        unknown += [f"{file}: {path}" for path in differences(before, after) if not OF_THE_DATA_SOURCE.fullmatch(path)]
    if unknown:
        sys.exit("Grafana does not know:\n" + "\n".join(unknown))


main()
