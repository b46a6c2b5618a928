"""PostgreSQL and etcd, the real ones, each in a network namespace of a cluster."""

import http.client
import pathlib
import shutil
import signal
import subprocess
import time

SOON = 60
POSTGRES = pathlib.Path("/usr/lib/postgresql/15/bin")
PASSWORD = "a password for the length of a test"


def in_namespace(namespace, *command):
    # Ends with the test, whatever happens to that.
    return ["ip", "netns", "exec", namespace.name, "setpriv", "--pdeathsig", "KILL", *map(str, command)]


def wait_until(what, level, seconds=SOON):
    deadline = time.monotonic() + seconds
    while not level():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.05)


class Postgres:
    """A server with a user and a database called fencegate, who owns it and has a password."""

    AS_USER = ("setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups")

    def __init__(self, namespace, directory):
        self.namespace, self.data = namespace, pathlib.Path(directory) / "data"
        pathlib.Path(directory).mkdir()
        shutil.chown(directory, "postgres", "postgres")
        self._run(POSTGRES / "initdb", "--auth=trust", "--encoding=UTF8", "--no-sync", "-D", self.data)
        (self.data / "pg_hba.conf").write_text("local all postgres trust\nhost all all 0.0.0.0/0 scram-sha-256\n")
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as settings:
            settings.write(f"listen_addresses = '*'\nunix_socket_directories = '{directory}'\nmax_connections = 60\n")
        with open(pathlib.Path(directory) / "log", "wb") as log:
            self.process = subprocess.Popen(
                in_namespace(namespace, *self.AS_USER, POSTGRES / "postgres", "-D", self.data),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.directory = directory
        wait_until("PostgreSQL is ready", lambda: subprocess.run(
            [POSTGRES / "pg_isready", "-q", "-h", directory], check=False).returncode == 0)
        self.sql(f"CREATE ROLE fencegate LOGIN PASSWORD '{PASSWORD}'")
        self.sql("CREATE DATABASE fencegate OWNER fencegate")

    def _run(self, *command):
        subprocess.run([*self.AS_USER, *map(str, command)], check=True, capture_output=True, cwd="/")

    def sql(self, statement, database="postgres"):
        done = subprocess.run(
            [*self.AS_USER, POSTGRES / "psql", "-h", self.directory, "-U", "postgres", "-d", database, "-XqtA",
             "-v", "ON_ERROR_STOP=1", "-c", statement], capture_output=True, text=True, cwd="/", check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def stop(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(timeout=SOON)


class Etcd:
    """One member."""

    def __init__(self, namespace, directory):
        url = f"http://{namespace.address}:2379"
        pathlib.Path(directory).mkdir()
        with open(pathlib.Path(directory) / "log", "wb") as log:
            self.process = subprocess.Popen(
                in_namespace(namespace, "etcd", "--data-dir", pathlib.Path(directory) / "data",
                             "--listen-client-urls", url, "--advertise-client-urls", url,
                             "--listen-peer-urls", "http://127.0.0.1:2380"),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until("etcd is healthy", lambda: self._is_healthy(namespace))

    @staticmethod
    def _is_healthy(namespace):
        try:
            connection = http.client.HTTPConnection(namespace.address, 2379)
            connection.sock = namespace.connect((namespace.address, 2379), 1)
            connection.request("GET", "/health")
            return b'"true"' in connection.getresponse().read()
        except OSError:
            return False

    def stop(self):
        self.process.kill()
        self.process.wait(timeout=SOON)
