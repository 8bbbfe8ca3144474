"""A plugin for pytest: kazoo's own tests get the recipes of the Go library in place of kazoo's.

An object here asks the bridge at $KAZOO_RECIPES, line by line, for what its object in Go shall do. It has kazoo's methods and
attributes, and the checks of Python's types that Go does not need. A client of kazoo's has a session of its own in Go.
"""

import itertools
import json
import os
import socket
import threading
import time
import uuid
from base64 import b64decode, b64encode
from datetime import datetime

import kazoo.client
import kazoo.recipe.lease
import kazoo.testing.harness
from kazoo.exceptions import CancelledError, LockTimeout
from kazoo.recipe.partitioner import PartitionState


STRETCH = 10


class Refused(Exception):
    """There is nothing to be had at once."""


class Bridge:
    errors = {"cancelled": CancelledError, "timeout": LockTimeout, "refused": Refused, "invalid": ValueError}

    def __init__(self):
        host, _, port = os.environ["KAZOO_RECIPES"].rpartition(":")
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests, self._answers = connection.makefile("w"), connection.makefile("r")
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._answers:
            answer = json.loads(line)
            came, place = self._waiting.pop(answer["id"])
            place.append(answer)
            came.set()

    def call(self, **request):
        came, place = threading.Event(), []
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = came, place
            self._requests.write(json.dumps(dict(request, id=number)) + "\n")
            self._requests.flush()
        if not came.wait(30):
            raise RuntimeError("no answer to %r" % request)
        answer = place[0]
        if "error" in answer:
            raise self.errors.get(answer.get("kind"), RuntimeError)(answer["error"])
        return answer["value"]


bridge = Bridge()


def session_of(client):
    if not hasattr(client, "in_go"):
        client.in_go = uuid.uuid4().hex
        hosts = ["%s:%d" % host for host in client.hosts]
        bridge.call(op="session", session=client.in_go, hosts=hosts, chroot=client.chroot or "")
    return client.in_go


class Recipe:
    def __init__(self, client, path, kind=None, **args):
        self.client, self.path = client, path if path.startswith("/") else "/" + path
        self._place = {"session": session_of(client), "object": uuid.uuid4().hex}
        self.call("new", kind=kind or type(self).__name__, path=self.path, **args)

    def call(self, op, **args):
        return bridge.call(op=op, **self._place, **args)


class Acquired(Recipe):
    """What is acquired and released, with kazoo's way to cancel."""

    is_acquired = cancelled = False

    def acquire(self, blocking=True, timeout=None, ephemeral=True):
        try:
            node = self.call("acquire", block=blocking, timeout=timeout or 0, persistent=not ephemeral)
        except Refused:
            return False
        finally:
            self.cancelled = False
        self.node, self.is_acquired = node.rpartition("/")[2], True
        return True

    def release(self):
        self.is_acquired = False
        return self.call("release")

    def cancel(self):
        self.cancelled = True
        self.call("cancel")

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()


class Lock(Acquired):
    def __init__(self, client, path, identifier=None, extra_lock_patterns=()):
        super().__init__(client, path, identifier=str(identifier or ""), patterns=list(extra_lock_patterns))
        self._turn = threading.Lock()  # an object of kazoo's is acquired once at a time

    def acquire(self, blocking=True, timeout=None, ephemeral=True):
        if not self._turn.acquire(blocking, -1 if timeout is None else timeout):
            return False
        got = False
        try:
            got = super().acquire(blocking, timeout, ephemeral)
        finally:
            if not got:
                self._turn.release()
        return got

    def release(self):
        try:
            return super().release()
        finally:
            self._turn.release()

    def contenders(self):
        return self.call("contenders")


class ReadLock(Lock):
    pass


class WriteLock(Lock):
    pass


class Semaphore(Acquired):
    def __init__(self, client, path, identifier=None, max_leases=1):
        super().__init__(client, path, identifier=str(identifier or ""), count=max_leases)
        self.wake_event = threading.Event()
        client.semaphores = getattr(client, "semaphores", []) + [self]

    def acquire(self, blocking=True, timeout=None):
        return self.is_acquired or super().acquire(blocking, timeout)

    def lease_holders(self):
        return self.call("lease_holders")


class Election(Recipe):
    def __init__(self, client, path, identifier=None):
        super().__init__(client, path, identifier=str(identifier or ""))

    def run(self, func, *args, **kwargs):
        if not callable(func):
            raise ValueError("leader function is not callable")
        try:
            self.call("acquire")
        except CancelledError:
            return
        try:
            func(*args, **kwargs)
        finally:
            self.call("release")

    def cancel(self):
        self.call("cancel")

    def contenders(self):
        return self.call("contenders")


class NonBlockingLease(Recipe):
    _version = 1
    theirs = kazoo.recipe.lease.NonBlockingLease

    def __init__(self, client, path, duration, identifier=None, utcnow=None):
        if self._version != NonBlockingLease.theirs._version:  # a record that Go does not write
            class Newer(NonBlockingLease.theirs):
                _version = self._version

            self.obtained = Newer(client, path, duration, identifier, utcnow).obtained
            return
        self._obtain(client, path, duration, identifier, utcnow)

    def _obtain(self, client, path, duration, identifier, utcnow, **args):
        super().__init__(
            client, path, identifier=identifier or socket.gethostname(), duration=duration.total_seconds(),
            now=(utcnow() - datetime(1970, 1, 1)).total_seconds(), **args)
        try:
            self.obtained = self.call("obtain")
        except Refused:
            self.obtained = False

    def __bool__(self):
        return self.obtained


class MultiNonBlockingLease(NonBlockingLease):
    def __init__(self, client, count, path, duration, identifier=None, utcnow=None):
        self._obtain(client, path, duration, identifier, utcnow, count=count)


def check(values, priority):
    if not isinstance(values, list) or not all(isinstance(value, bytes) for value in values):
        raise TypeError("values are byte strings")
    if not isinstance(priority, int):
        raise TypeError("a priority is an integer")


class Queue(Recipe):
    def put(self, value, priority=100):
        self.put_all([value], priority)

    def put_all(self, values, priority=100):
        check(values, priority)
        self.call("put", values=[b64encode(value).decode() for value in values], priority=priority)

    def get(self, timeout=None):
        try:
            return b64decode(self.call("get", timeout=0.001 if timeout == 0 else timeout or 0))
        except (Refused, LockTimeout):
            return None

    def __len__(self):
        return self.call("len")


class PatientEvent(threading.Event):
    def wait(self, timeout=None):
        return super().wait(timeout and STRETCH * timeout)


class LockingQueue(Queue):
    """A queue whose tests wait ten times as long: kazoo's wait for 0.1 s, which is short on a busy machine, with a bridge on the way."""

    def __init__(self, client, path):
        super().__init__(client, path)
        client.handler.event_object = PatientEvent

    def get(self, timeout=None):
        return super().get(timeout and STRETCH * timeout)

    def consume(self):
        return self.call("consume")

    def release(self):
        return self.call("release")

    def holds_lock(self):
        return self.call("holds")


class Barrier(Recipe):
    def create(self):
        self.call("create")

    def remove(self):
        return self.call("remove")

    def wait(self, timeout=None):
        try:
            self.call("wait", timeout=0.001 if timeout == 0 else timeout or 0)
        except LockTimeout:
            return False
        return True


class Member(Recipe):
    """What has a znode of its own as long as it takes part."""

    @property
    def create_path(self):
        return self.call("node")

    @property
    def participating(self):
        return self.call("participating")

    def leave(self):
        self.call("leave")


class DoubleBarrier(Member):
    def __init__(self, client, path, num_clients, identifier=None):
        super().__init__(client, path, count=num_clients, identifier=identifier or "")

    def enter(self):
        self.call("enter", timeout=10)


class Party(Member):
    def __init__(self, client, path, identifier=None):
        self.data = str(identifier or "").encode()
        super().__init__(client, path, identifier=str(identifier or ""))

    def join(self):
        self.call("join")

    def __iter__(self):
        return iter(self.call("members"))

    def __len__(self):
        return len(self.call("members"))


class ShallowParty(Party):
    pass


class SetPartitioner(Recipe):
    def __init__(self, client, path, set, identifier=None, time_boundary=30):
        self._items = {str(item): item for item in set}
        self.state_change_event = threading.Event()
        super().__init__(
            client, path, items=list(self._items), identifier=identifier or uuid.uuid4().hex, timeout=time_boundary)

    @property
    def state(self):
        return getattr(PartitionState, self.call("state"))

    @property
    def release(self):
        return self.state == PartitionState.RELEASE

    @property
    def failed(self):
        return self.state == PartitionState.FAILURE

    def __iter__(self):
        return iter([self._items[item] for item in self.call("items")])

    def wait_for_acquire(self, timeout=30):
        try:
            self.call("wait_for_acquire", timeout=timeout)
        except LockTimeout:
            pass

    def release_set(self):
        if not self.failed:  # kazoo's then says nothing
            self.call("release_set")

    def finish(self):
        self.call("finish")

    def _fail_out(self):
        self.call("expire")
        while not self.failed:
            time.sleep(0.01)


class Counter(Recipe):
    pre_value = post_value = None

    def __init__(self, client, path, default=0, support_curator=False):
        self._type = type(default)
        if support_curator and self._type is not int:
            raise TypeError("Curator's counters are integers")
        super().__init__(client, path, "CuratorCounter" if support_curator else self._type.__name__ + "Counter", default=default)

    @property
    def value(self):
        return self._type(self.call("value"))

    def _add(self, value, sign):
        if not isinstance(value, self._type):
            raise TypeError("a value of another type")
        self.pre_value, self.post_value = map(self._type, self.call("add", delta=sign * value))
        return self

    def __add__(self, value):
        return self._add(value, 1)

    def __sub__(self, value):
        return self._add(value, -1)


for name in os.environ["KAZOO_IN_GO"].split(","):
    setattr(kazoo.client, name, globals()[name])
    if hasattr(kazoo.recipe.lease, name):
        setattr(kazoo.recipe.lease, name, globals()[name])  # its tests make objects of it

stop = kazoo.client.KazooClient.stop
expire = kazoo.testing.harness.KazooTestHarness.expire_session


def stop_both(self):
    """Ends the session in Go, too."""
    if hasattr(self, "in_go"):
        bridge.call(op="stop", session=self.in_go)
    stop(self)


def expire_both(self, *args, **kwargs):
    """Has the session in Go expire, too."""
    if hasattr(self.client, "in_go"):
        bridge.call(op="expire", session=self.client.in_go)
        for semaphore in getattr(self.client, "semaphores", ()):
            semaphore.wake_event.set()
    expire(self, *args, **kwargs)


kazoo.client.KazooClient.stop = stop_both
kazoo.testing.harness.KazooTestHarness.expire_session = expire_both
