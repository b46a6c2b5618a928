"""An API that writes down what reaches it, and workers that write to it through the gateways."""

import asyncio
import collections
import http.client
import itertools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote


class Api:
    """Takes a moment for each write, and answers 200."""

    def __init__(self, namespace, port=9000, moment=0.05):
        self.seen = []
        record = self.seen

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_write(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                time.sleep(moment)
                record.append((self.path, self.headers["Fencing-Token"], body.decode()))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_PUT = do_POST = do_GET = handle_write

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, *_):
                """A gateway that ends resets connections that it has no use for."""

        self.server = Server((namespace.address, port), Handler, bind_and_activate=False)
        self.server.socket.close()
        self.server.socket = namespace.listen(port)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def ask(place, address, method, path, body=None, headers=None, timeout=60):
    """One request on a connection of its own: its status and its body."""
    connection = http.client.HTTPConnection(*address)
    connection.sock = place.connect(address, timeout)
    connection.request(method, path, body, {"Connection": "close", **(headers or {})})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


class Worker(threading.Thread):
    """Holds the lease of one resource and writes numbers under it until it is told to stop."""

    def __init__(self, place, gateway, name, credential):
        """`credential`: fields of a header that the lease listener knows it by."""
        super().__init__(daemon=True)
        self.credential = credential
        self.place, self.gateway = place, gateway
        self.lease = self.resource = f"/files/{name}"
        self.told, self.stopping = [], threading.Event()
        self.ports = {"proxy": 8080, "leases": 8081}

    def run(self):
        try:
            self._work()
        except Exception as error:  # pylint: disable=broad-except
            # A thread has nobody to tell; the test looks at what was told.
            self.told.append(("failed", repr(error), -1))

    def _work(self):
        lease = json.dumps({"owner": self.name, "ttl_ms": 60000, "wait_ms": 10000})
        status, text = ask(self.place, (self.gateway, self.ports["leases"]), "POST",
                           f"/v1/leases/{quote(self.lease, safe='')}", lease,
                           {"Content-Type": "application/json", **self.credential})
        assert status == 201, text
        token = json.loads(text)["token"]
        for number in itertools.count():
            if self.stopping.is_set():
                return
            status, text = ask(self.place, (self.gateway, self.ports["proxy"]), "PUT", self.resource, str(number),
                               {"Fencing-Token": token})
            self.told.append((status, text, number))

    def stop(self):
        self.stopping.set()
        self.join(timeout=60)
        assert not self.is_alive(), "a write was not answered within a minute"


def assert_all_arrived_once(seen, workers):
    arrived = collections.Counter((path, body) for path, _, body in seen)
    for worker in workers:
        for _, _, number in worker.told:
            assert arrived[worker.resource, str(number)] == 1, (worker.resource, number)
    assert sum(arrived.values()) == sum(len(worker.told) for worker in workers), "somebody else wrote"


class QuickApi(asyncio.Protocol):
    """Answers 200 to whatever it reads, as quickly as can be."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * data.count(b"\r\n\r\n"))

    @staticmethod
    def serve(namespace, port):
        """For as long as the test runs, in a thread of its own."""
        async def main():
            server = await asyncio.get_running_loop().create_server(QuickApi, sock=namespace.listen(port))
            await server.serve_forever()
        threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()


def write_many(place, address, paths, connections):
    """One fenced write to each path; answers how often which status came."""
    told = collections.Counter()
    left = iter(paths)

    async def writer():
        reader, stream = await asyncio.open_connection(sock=place.connect(address))
        for path in left:
            stream.write(f"PUT {path} HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 1\r\n\r\nx".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            told[int(head.split()[1])] += 1
            assert told[200] == told.total(), head
        stream.close()

    async def main():
        await asyncio.gather(*(writer() for _ in range(connections)))
    asyncio.run(main())
    return told
