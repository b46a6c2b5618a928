"""The network of a cluster of one node: a network namespace per pod, routed by one for the node.

Everything lies in namespaces of its own, which have no way out of this machine. As in a real cluster, pods reach each
other by address, services are translated on the node before policies are looked at, and what the node itself sends
(the kubelet's probes) is subject to no policy.
"""

import contextlib
import ctypes
import itertools
import os
import socket
import subprocess

NODE_ADDRESS = "10.77.0.1"
CLONE_NEWNET = 0x40000000
_networks = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)


def run(*command, stdin=None):
    """Runs a program that has to succeed, and answers its output."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
    return done.stdout


class Namespace:
    """A network namespace, and sockets in it."""

    def __init__(self, name, address):
        self.name, self.address = name, address
        run("ip", "netns", "add", name)
        self.path = f"/run/netns/{name}"
        run("ip", "-n", name, "link", "set", "lo", "up")

    @contextlib.contextmanager
    def entered(self):
        """Sockets that this thread makes in here belong to the namespace for as long as they live."""
        with open("/proc/thread-self/ns/net", "rb") as home, open(self.path, "rb") as there:
            _enter(there)
            try:
                yield
            finally:
                _enter(home)

    def connect(self, address, timeout=10):
        with self.entered():
            return socket.create_connection(address, timeout=timeout)

    def listen(self, port, address=""):
        with self.entered():
            return socket.create_server((address, port), backlog=512)

    def delete(self):
        run("ip", "netns", "delete", self.name)


def _enter(file):
    if _libc.setns(file.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns; the test has to run as root")


class Network:
    """The node with its pods' addresses."""

    def __init__(self):
        # 15 letters are the most that an interface may have.
        self.prefix = f"fg{os.getpid() % 100000}{next(_networks)}"
        self.node = Namespace(f"{self.prefix}-node", NODE_ADDRESS)
        self.pods = []
        self._numbers = itertools.count(2)
        run("ip", "-n", self.node.name, "address", "add", f"{NODE_ADDRESS}/32", "dev", "lo")
        run("ip", "netns", "exec", self.node.name, "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def pod(self):
        """A namespace that reaches the others by the node alone."""
        number = next(self._numbers)
        pod = Namespace(f"{self.prefix}-{number}", f"10.77.{number >> 8}.{number & 255}")
        self.pods.append(pod)
        outside = f"{self.prefix}v{number}"
        run("ip", "link", "add", outside, "netns", self.node.name, "type", "veth",
            "peer", "name", "eth0", "netns", pod.name)
        run("ip", "-n", pod.name, "address", "add", f"{pod.address}/32", "dev", "eth0")
        run("ip", "-n", pod.name, "link", "set", "eth0", "up")
        run("ip", "-n", self.node.name, "link", "set", outside, "up")
        run("ip", "-n", self.node.name, "route", "add", pod.address, "dev", outside)
        run("ip", "-n", pod.name, "route", "add", NODE_ADDRESS, "dev", "eth0")
        run("ip", "-n", pod.name, "route", "add", "default", "via", NODE_ADDRESS)
        return pod

    def rules(self, text):
        """Replaces rules of nftables on the node, all at once."""
        run("ip", "netns", "exec", self.node.name, "nft", "-f", "-", stdin=text)

    def delete(self):
        for namespace in [*self.pods, self.node]:
            namespace.delete()


REFUSED, OPEN = "refused", "open"


def reach(place, address, port):
    """What a client at a place of the network finds at an address."""
    try:
        place.connect((address, port), timeout=1).close()
        return OPEN
    except (TimeoutError, ConnectionError):
        return REFUSED
