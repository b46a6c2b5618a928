"""A worker that holds the lease of /reports/may and writes a line to it every second, through the gateway.

    python3 worker.py OWNER LINES

Exit codes: 0 all lines are written, 75 another worker has the lease, 76 the lease is lost or the gateway
refused the token for good, 1 anything else. Standard library only; Linux, for CLOCK_BOOTTIME.
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

LEASES = os.environ.get("LEASES", "http://127.0.0.1:8081")
GATEWAY = os.environ.get("GATEWAY", "http://127.0.0.1:8080")
TTL_MS = int(os.environ.get("TTL_MS", "10000"))
PAUSE_MS = int(os.environ.get("PAUSE_MS", "1000"))
RESOURCE = "/reports/may"
TRIES = 5

# Not through a proxy that the environment names for the web.
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Ended(Exception):
    """The work is over, with this exit code."""

    def __init__(self, code, why):
        super().__init__(why)
        self.code = code


def now():
    """Seconds on a clock that goes on while the machine is suspended; time.monotonic() does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def exchange(method, url, body, headers=None, timeout=60):
    """Sends a request; status, headers and body of the answer, whatever its status."""
    request = urllib.request.Request(url, body, headers or {}, method=method)
    try:
        with HTTP.open(request, timeout=timeout) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, answer.read()


class Lease:
    """Taken, and renewed every third of its time until it is released or lost."""

    def __init__(self, owner):
        self.owner = owner
        # One segment: the slashes of the resource are encoded as well.
        self.url = f"{LEASES}/v1/leases/{urllib.parse.quote(RESOURCE, safe='')}"
        self.over = threading.Event()
        asked = now()
        wanted = json.dumps({"owner": owner, "ttl_ms": TTL_MS}).encode()
        status, _, body = exchange("POST", self.url, wanted)
        if status == 409:
            raise Ended(75, f"another worker has the lease of {RESOURCE}")
        if status != 201:
            raise Ended(1, f"no lease: {status} {body.decode()}")
        lease = json.loads(body)
        # A string: it has up to 19 digits, and is passed on as it is.
        self.token = lease["token"]
        self._confirmed(asked, lease)
        threading.Thread(target=self._renew, daemon=True).start()

    def _confirmed(self, asked, lease):
        # From before the request was sent: the gateway's own deadline is never earlier than this one.
        self.deadline = asked + lease["ttl_ms"] / 1000

    def is_live(self):
        """Whether there is time left to write. Keeps work from being in vain; the gateway is the fence."""
        return not self.over.is_set() and now() < self.deadline - TTL_MS / 5000

    def _renew(self):
        body = json.dumps({"owner": self.owner, "token": self.token, "ttl_ms": TTL_MS}).encode()
        pause = TTL_MS / 3000
        while not self.over.wait(pause):
            asked = now()
            try:
                status, _, answer = exchange("POST", self.url + "/renew", body, timeout=TTL_MS / 3000)
            except OSError:
                status = None
            if status == 200:
                self._confirmed(asked, json.loads(answer))
                pause = TTL_MS / 3000
            elif (status and 400 <= status < 500) or now() > self.deadline:
                self.over.set()
            else:
                pause = TTL_MS / 20000

    def release(self):
        self.over.set()
        query = urllib.parse.urlencode({"owner": self.owner, "token": self.token})
        try:
            exchange("DELETE", f"{self.url}?{query}", None)
        except OSError:
            pass  # It ends by itself when its time is over.


def refusal(status, headers, body):
    """The gateway's own answer, or None if it is the API's."""
    if status < 400 or headers.get("Content-Type") != "application/problem+json":
        return None
    problem = json.loads(body)
    return problem if "outcome" in problem else None


def write(lease, line):
    """Writes once; sends again only what certainly did not happen."""
    for _ in range(TRIES):
        if not lease.is_live():
            raise Ended(76, "the lease is lost")
        headers = {"Fencing-Token": lease.token, "Content-Type": "text/plain"}
        try:
            status, headers, body = exchange("PUT", GATEWAY + RESOURCE, line.encode(), headers)
        except OSError as error:
            raise Ended(1, f"no answer, it may have happened: {error}") from error
        problem = refusal(status, headers, body)
        if problem is None:
            if status >= 300:
                raise Ended(1, f"the API answered {status}")
            return
        why = f"{problem['code']}: {problem['detail']}"
        if status in (403, 412):
            raise Ended(76, why)  # Another worker has taken over: final, whatever is tried.
        if problem["outcome"] != "not_forwarded":
            raise Ended(1, f"it may have happened, look at the API first: {why}")
        if headers.get("x-should-retry") == "false":
            raise Ended(1, why)
        time.sleep(int(headers.get("Retry-After", "1")))
    raise Ended(1, f"gave up after {TRIES} tries: {why}")


def main(owner, lines):
    lease = Lease(owner)
    print(f"{owner} has the lease, with token {lease.token}", flush=True)
    try:
        for line in range(1, lines + 1):
            write(lease, f"line {line} of {owner}\n")
            print(f"wrote line {line}", flush=True)
            time.sleep(PAUSE_MS / 1000)
    finally:
        lease.release()


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except Ended as ended:
        print(f"stopped: {ended}", file=sys.stderr)
        sys.exit(ended.code)
