"""Does what recipes_test.go does, with kazoo, and says how long it took.

    python figures.py ZOOKEEPER MEMBERS

connects, writes {"sessions": [...]}, and then answers each line {"what": ..., "path": ..., "n": ...} on standard input
with {"seconds": ...} on standard output, or with {"error": ...}. The first use of a path is not counted.
"""

import json
import sys
import threading
import time

from kazoo.client import KazooClient

VALUE = b"v" * 100
ITEMS = ["item-%02d" % i for i in range(11)]


class Figures:
    def __init__(self, hosts, members):
        self.clients = [KazooClient(hosts, timeout=10) for _ in range(members)]
        for client in self.clients:
            client.start()
        self.client = self.clients[0]
        self.queue = self.held = None
        self.waiting = []

    def lock(self, path, n):
        lock = self.client.Lock(path, "figures")
        with lock:
            pass
        began = time.monotonic()
        for _ in range(n):
            lock.acquire()
            lock.release()
        return time.monotonic() - began

    def queue_up(self, path, n):
        self.held = self.client.Lock(path, "figures")
        self.held.acquire()
        self.acquired = []
        self.waiting = [threading.Thread(target=self.wait, args=(path,)) for _ in range(n)]
        for thread in self.waiting:
            thread.start()

    def wait(self, path):
        lock = self.client.Lock(path, "figures")
        lock.acquire()
        self.acquired.append(time.monotonic())
        lock.release()

    def hand_over(self, path, n):
        began = time.monotonic()
        self.held.release()
        for thread in self.waiting:
            thread.join()
        if len(self.acquired) != n:
            raise AssertionError("%d of %d acquired" % (len(self.acquired), n))
        return max(self.acquired) - began

    def put(self, path, n):
        queue = self.client.Queue(path)
        queue.put(VALUE)
        began = time.monotonic()
        for _ in range(n):
            queue.put(VALUE)
        return time.monotonic() - began

    def fill(self, path, n):
        self.queue = self.client.Queue(path)
        for _ in range(n + 1):
            self.queue.put(VALUE)
        self.queue.get()
        self.queue = self.client.Queue(path)  # it has listed nothing yet

    def get(self, path, n):
        began = time.monotonic()
        for _ in range(n):
            if self.queue.get() != VALUE:
                raise AssertionError("another value was put")
        return time.monotonic() - began

    def fill_locking(self, path, n):
        self.queue = self.client.LockingQueue(path)
        self.queue.put_all([VALUE] * (n + 1))
        self.queue.get(10)
        self.queue.consume()

    def consume(self, path, n):
        began = time.monotonic()
        for _ in range(n):
            if self.queue.get(10) != VALUE or not self.queue.consume():
                raise AssertionError("another value was put, or it was not consumed")
        return time.monotonic() - began

    def count(self, path, n):
        counter = self.client.Counter(path)
        counter += 1
        began = time.monotonic()
        for _ in range(n):
            counter += 1
        took = time.monotonic() - began
        if counter.value != n + 1:
            raise AssertionError("counted to %d" % counter.value)
        return took

    def partition(self, path, n):
        """n is the time boundary in milliseconds."""
        members = [None] * len(self.clients)
        acquired = []

        def member(i):
            members[i] = p = self.clients[i].SetPartitioner(
                path, ITEMS, identifier="member-%d" % i, time_boundary=n / 1000.0
            )
            p.wait_for_acquire(30)
            if p.acquired:
                acquired.append(time.monotonic())

        threads = [threading.Thread(target=member, args=(i,)) for i in range(len(members))]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        owned = sorted(item for p in members for item in p)
        for p in members:
            p.finish()
        if len(acquired) != len(members) or owned != ITEMS:
            raise AssertionError("%d acquired, %r" % (len(acquired), owned))
        return max(acquired) - began


def main():
    figures = Figures(sys.argv[1], int(sys.argv[2]))
    print(json.dumps({"sessions": [c.client_id[0] for c in figures.clients]}), flush=True)
    for line in sys.stdin:
        try:
            request = json.loads(line)
            took = getattr(figures, request["what"])(request["path"], request["n"])
            reply = {"seconds": took or 0}
        except Exception as e:
            reply = {"error": repr(e)}
        print(json.dumps(reply), flush=True)


main()
