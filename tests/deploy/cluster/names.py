"""The cluster's name server: services by name, over UDP, A records alone."""

import socket
import struct
import threading


class Names:
    """Answers on port 53 of a namespace until it is closed."""

    def __init__(self, namespace):
        self.known = {}
        with namespace.entered():
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((namespace.address, 53))
        # A thread that waits in a socket does not notice that it is closed, and may read from the next one.
        self.socket.settimeout(0.2)
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while not self.closing.is_set():
            try:
                query, client = self.socket.recvfrom(2048)
            except TimeoutError:
                continue
            if answer := self._answer(query):
                self.socket.sendto(answer, client)

    def _answer(self, query):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += query[at] + 1
        kind, = struct.unpack(">H", query[at + 1:at + 3])
        question = query[12:at + 5]
        address = self.known.get(".".join(labels).lower())
        is_answered = address is not None and kind == 1
        code = 0 if address is not None else 3
        head = query[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, is_answered, 0, 0)
        if not is_answered:
            return head + question
        octets = bytes(int(octet) for octet in address.split("."))
        return head + question + b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 5, 4) + octets

    def close(self):
        self.closing.set()
        self.thread.join()
        self.socket.close()
