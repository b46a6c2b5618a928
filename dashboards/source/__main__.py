"""Writes the dashboards' JSON beside this directory: `python3 dashboards/source`. With `--check` it writes nothing
and fails if a file is not what it would write."""

import json
import pathlib
import sys

import operators
import resource_story

OUT = pathlib.Path(__file__).resolve().parent.parent


def main():
    made = {"operators.json": operators.build(), "resource.json": resource_story.build()}
    texts = {OUT / name: json.dumps(board, indent=2, ensure_ascii=False) + "\n" for name, board in made.items()}
    if sys.argv[1:] == ["--check"]:
        differing = [path.name for path, text in texts.items() if not path.is_file() or path.read_text() != text]
        if differing:
            sys.exit(f"run `python3 dashboards/source`: it would change {', '.join(differing)}")
        return
    for path, text in texts.items():
        path.write_text(text)


main()
