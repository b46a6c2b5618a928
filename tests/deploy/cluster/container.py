"""A container of a pod, run by runc with just what the pod's specification says of it.

A field that is not known here is an error: what is rendered is what is tested.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading

from .rules import known

UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
# The container's word wins over the pod's.
OF_BOTH = ("runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile")
SECCOMP = pathlib.Path("/usr/share/containers/seccomp.json")


class Container:
    """Runs from construction on."""

    def __init__(self, spec, pod, image, files, directory):
        """`pod`: its specification with `namespace`, a network namespace. `files`: a directory per volume."""
        known(spec, {"name", "image", "imagePullPolicy", "args", "env", "ports", "startupProbe", "livenessProbe",
                     "readinessProbe", "securityContext", "resources", "volumeMounts"})
        self.name = f"{pod['namespace'].name}-{spec['name']}"
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True)
        config = runtime_config(spec, pod, image, files, self.directory, self.name)
        (self.directory / "config.json").write_text(json.dumps(config, indent=1))
        self.output = self.directory / "output"
        self.output.touch()
        self._state = self.directory / "state"
        # A pipe, as from a container's runtime: what is written into a file would count as the container's memory.
        self.process = subprocess.Popen(
            [*self._runc(), "run", "--bundle", self.directory, self.name],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self._copy_output, daemon=True).start()

    def _copy_output(self):
        with open(self.output, "wb", buffering=0) as output:
            while text := self.process.stdout.read1():
                output.write(text)

    def _runc(self):
        return ["runc", "--root", self._state]

    def log(self):
        return self.output.read_text(errors="replace")

    def exit_code(self):
        """`None` while it runs."""
        return self.process.poll()

    def signal(self, which=signal.SIGTERM):
        subprocess.run([*self._runc(), "kill", self.name, str(int(which))], check=True)

    def pid(self):
        state = subprocess.run([*self._runc(), "state", self.name], capture_output=True, text=True, check=True)
        return json.loads(state.stdout)["pid"]

    def memory(self):
        """Bytes: the most that counted towards the limit, and what the process has now."""
        with open(f"/proc/{self.pid()}/status", encoding="ascii") as file:
            resident = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))
        return self._memory_peak(), resident

    def _memory_peak(self):
        lines = pathlib.Path(f"/proc/{self.pid()}/cgroup").read_text().splitlines()
        controllers = dict(line.split(":", 2)[1:] for line in lines)
        for names, path in controllers.items():
            if "memory" in names.split(","):
                file = f"/sys/fs/cgroup/memory{path}/memory.max_usage_in_bytes"
                return int(pathlib.Path(file).read_text())
        return int(pathlib.Path(f"/sys/fs/cgroup{controllers['']}/memory.peak").read_text())

    def remove(self):
        subprocess.run([*self._runc(), "delete", "--force", self.name], capture_output=True, check=False)
        self.process.wait(timeout=30)
        shutil.rmtree(self._state, ignore_errors=True)


def runtime_config(spec, pod, image, files, directory, name):
    """The configuration for the OCI runtime."""
    known(pod["securityContext"], {"fsGroup", *OF_BOTH})
    known(spec["securityContext"], {"allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities", *OF_BOTH})
    security = {**pod["securityContext"], **spec["securityContext"]}
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    user = security["runAsUser"]
    # What the kubelet refuses: an image whose user is root, or is not a number.
    assert security["runAsNonRoot"] and int(image.config["User"].split(":")[0]) > 0 and user > 0
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(image.root), "readonly": security["readOnlyRootFilesystem"]},
        "process": {
            "args": image.config["Entrypoint"] + spec.get("args", image.config.get("Cmd", [])),
            "env": image.config.get("Env", []) + environment(spec),
            "cwd": image.config.get("WorkingDir") or "/",
            "user": {"uid": user, "gid": security["runAsGroup"], "additionalGids": [security["fsGroup"]]},
            "noNewPrivileges": not security["allowPrivilegeEscalation"],
            "capabilities": {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")},
        },
        "hostname": name,
        "mounts": system_mounts() + pod_mounts(spec, files, directory),
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
            + [{"type": "network", "path": pod["namespace"].path}],
            "resources": {"memory": {"limit": size(spec["resources"]["limits"]["memory"])}},
            "cgroupsPath": f"/fencegate-test-{name}",
            "seccomp": default_seccomp(),
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    }


def environment(spec):
    for variable in spec.get("env", []):
        known(variable, {"name", "value"})
    return [f"{variable['name']}={variable['value']}" for variable in spec.get("env", [])]


def size(text):
    return int(text[:-2]) * UNITS[text[-2:]]


def system_mounts():
    quiet = ["nosuid", "noexec", "nodev"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": quiet},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*quiet, "mode=1777", "size=65536k"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*quiet, "ro"]},
    ]


def pod_mounts(spec, files, directory):
    """The volumes, and the two files that the kubelet puts into every container."""
    binds = []
    for mount in spec.get("volumeMounts", []):
        known(mount, {"name", "mountPath", "readOnly"})
        mode = "ro" if mount.get("readOnly") else "rw"
        binds.append((files[mount["name"]], mount["mountPath"], mode))
    binds += [(files["/etc/resolv.conf"], "/etc/resolv.conf", "ro"), (files["/etc/hosts"], "/etc/hosts", "ro")]
    return [{"destination": at, "type": "bind", "source": str(source), "options": ["rbind", mode, "nosuid", "nodev"]}
            for source, at, mode in binds]


def default_seccomp():
    """What container runtimes take for `RuntimeDefault` where nothing was added to the capabilities."""
    profile = json.loads(SECCOMP.read_text())
    machine = "amd64" if os.uname().machine == "x86_64" else "arm64"
    calls = []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        applies = (not includes.get("caps") and machine in includes.get("arches", [machine])
                   and machine not in excludes.get("arches", []))
        if applies:
            kept = ("names", "action", "args", "errnoRet")
            calls.append({key: rule[key] for key in kept if rule.get(key) is not None})
    arches = {"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}
    default = {key: profile[key] for key in ("defaultAction", "defaultErrnoRet") if key in profile}
    return {**default, "architectures": [arches[machine]], "syscalls": calls}
