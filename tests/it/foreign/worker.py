"""A worker that knows nothing of Fencegate: it locks with python-etcd3.

worker.py HOST PORT NAME TTL_SECONDS: waits for the lock, prints its key and create revision, holds
it until standard input ends, unlocks, and prints "unlocked".
"""

import sys

import etcd3

host, port, name, ttl = sys.argv[1:]
client = etcd3.client(host=host, port=int(port))
lock = client.lock(name, ttl=int(ttl))
assert lock.acquire(timeout=None)
_, meta = client.get(lock.key)
print(meta.key.decode(), meta.create_revision, flush=True)
while sys.stdin.buffer.read(1):
    pass
assert lock.release()
print("unlocked", flush=True)
