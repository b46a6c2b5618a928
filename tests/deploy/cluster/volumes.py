"""The volumes of a pod as the kubelet lays them out: a directory that is swapped as a whole, owned by the pod's group."""

import os
import pathlib
import tempfile

from .rules import known


def lay_out(volume, group, configs, secrets, directory):
    """Makes the directory of one volume, or swaps what is in it. `configs` and `secrets`: {name: {key: text}}."""
    if "configMap" in volume:
        known(volume, {"name", "configMap"})
        known(volume["configMap"], {"name"})
        return write(configs[volume["configMap"]["name"]], 0o644, group, directory)
    if "secret" in volume:
        known(volume, {"name", "secret"})
        known(volume["secret"], {"secretName", "defaultMode"})
        return write(secrets[volume["secret"]["secretName"]], volume["secret"]["defaultMode"], group, directory)
    known(volume, {"name", "persistentVolumeClaim"})
    return claim(group, directory)


def claim(group, directory):
    """An empty disk."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    os.chown(directory, 0, group)
    directory.chmod(0o2775)
    return directory


def write(keys, mode, group, directory):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    version = pathlib.Path(tempfile.mkdtemp(prefix="..", dir=directory))
    version.chmod(0o755)
    for key, text in keys.items():
        (version / key).write_text(text)
        (version / key).chmod(mode)
        os.chown(version / key, 0, group)
        if not (directory / key).is_symlink():
            (directory / key).symlink_to(f"..data/{key}")
    new = directory / "..data_tmp"
    new.symlink_to(version.name)
    new.replace(directory / "..data")
    return directory
