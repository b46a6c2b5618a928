"""Draws a dashboard as Grafana would, without Grafana, from a Prometheus' data.

    python3 dashboards/picture --prometheus http://127.0.0.1:9090 --minutes 60 \\
        --set job=fencegate dashboards/operators.json operators.png

Needs matplotlib (tests/watch/requirements.txt). With `--data FILE` it also, or without a picture only, writes what it
asked and what came back, as JSON.
"""

import argparse
import json
import pathlib
import time

from ask import Prometheus, ask


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dashboard", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path, nargs="?")
    parser.add_argument("--prometheus", required=True, metavar="URL")
    parser.add_argument("--scrape", type=int, default=15, metavar="SECONDS", help="its scrape interval (15)")
    parser.add_argument("--end", type=float, metavar="UNIX_TIME", help="default: now")
    parser.add_argument("--minutes", type=float, default=60, help="how much to show (60)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable's value; again for more")
    parser.add_argument("--data", type=pathlib.Path)
    return parser.parse_args()


def main():
    given = arguments()
    board = json.loads(given.dashboard.read_text())
    chosen = {}
    for pair in given.set:
        name, value = pair.split("=", 1)
        chosen.setdefault(name, []).append(value)
    end = given.end or time.time()
    told = ask(Prometheus(given.prometheus, given.scrape), board, end - given.minutes * 60, end, chosen)
    if given.data:
        given.data.write_text(json.dumps(told))
    if given.picture:
        # Only a picture needs matplotlib.
        from draw import draw
        draw(board, told, given.picture)


main()
