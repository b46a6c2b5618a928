"""An image as a runtime sees it: its files and its configuration, read from an OCI layout."""

import json
import pathlib

from .network import run


class Image:
    def __init__(self, layout, directory):
        self.layout = pathlib.Path(layout)
        index = json.loads((self.layout / "index.json").read_text())
        self.digest = index["manifests"][0]["digest"]
        manifest = json.loads(self._blob(self.digest).read_text())
        self.config = json.loads(self._blob(manifest["config"]["digest"]).read_text())["config"]
        self.compressed = sum(layer["size"] for layer in manifest["layers"])
        self.root = pathlib.Path(directory)
        self.root.mkdir()
        for layer in manifest["layers"]:
            run("tar", "-xpzf", str(self._blob(layer["digest"])), "-C", str(self.root))

    def _blob(self, digest):
        return self.layout / "blobs" / digest.replace(":", "/")

    @property
    def binary(self):
        return self.root / "usr/bin/fencegate"

    @property
    def size(self):
        """Bytes, unpacked."""
        return sum(file.stat().st_size for file in self.root.rglob("*") if file.is_file())
