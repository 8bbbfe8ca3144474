"""Contenders of kazoo's recipes, each a process of its own, which may be killed or stopped at any moment.

    python contenders.py ZOOKEEPER

imports kazoo, once, and takes lines of JSON:

    {"id": 1, "plan": {...}}        forks contender 1, which says what it does until {"id": 1, "say": "end"}
    {"id": 1, "signal": "SIGSTOP"}  sends it a signal, then says {"id": 1, "say": "SIGSTOP"}; SIGKILL: and it is gone
    {"id": 0}                       says {"id": 0, "say": "clock", "at": <time.monotonic_ns()>}

All write to one pipe, line by line, so what a contender said stands before the answer to the signal that ended it.

A hold is what the server says: a process that was stopped can't know that its session is over. So whoever holds
something asks whether the znode of the hold stands, again and again, and {"say": "held", "began": ..., "until": ...}
goes up to the moment before the last question to which the answer was yes.
"""

import ctypes
import datetime
import json
import os
import signal
import sys
import time
import traceback

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException, LockTimeout, OperationTimeoutError, SessionExpiredError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

ending = False  # SIGTERM has come


class Contender:
    def __init__(self, me, hosts, plan):
        self.me, self.plan, self.path, self.name = me, plan, plan["path"], plan["name"]
        self.made = {}  # objects of kazoo's, which are used again
        self.op = {}
        # kazoo's own retries would double up to an hour.
        self.client = KazooClient(
            hosts,
            timeout=plan["timeout"],
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2),
            command_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2),
        )

    def say(self, say, **more):
        line = json.dumps(dict(more, id=self.me, say=say, op=self.op.get("n", 0))) + "\n"
        os.write(1, line.encode())  # a line of less than 4096 bytes is written in one piece

    def run(self):
        self.client.start(timeout=60)
        self.client.add_listener(self.told)
        self.say("begin")
        for self.op in self.plan["ops"]:
            self.say("ask")
            try:
                self.say("done" if getattr(self, self.op["make"])() else "refused")
            except LockTimeout:
                self.say("refused")
            except (ConnectionLoss, SessionExpiredError, OperationTimeoutError):
                self.say("lost", text=traceback.format_exc())  # told may come later
            except KazooException:
                self.say("failed", text=traceback.format_exc())
            if ending:
                break
            time.sleep(self.op["rest"])
        self.client.remove_listener(self.told)
        self.client.stop()
        self.client.close()

    def told(self, state):
        if state != KazooState.CONNECTED:
            self.say("lost", text=state)

    def session(self):
        return self.client.client_id[0]

    def hold(self, what, path, shared=False, session=None, text=""):
        """Says how long the znode of a hold stands; in a session, if one is given: it is nobody else's znode then."""
        began, czxid = time.monotonic_ns(), None
        self.say("got", what=what, text=text)
        for last in [False] * self.op["parts"] + [True]:
            now = time.monotonic_ns()
            stat = self.client.exists(path)
            if stat is None or czxid not in (None, stat.czxid) or session not in (None, stat.ephemeralOwner):
                return
            czxid = stat.czxid
            self.say("held", what=what, shared=shared, began=began, until=now)
            if not last:
                time.sleep(self.op["pause"])

    def ask(self, thing):
        if self.op["mode"] == "try":
            return thing.acquire(blocking=False)
        if self.op["mode"] == "timeout":
            return thing.acquire(timeout=self.op["seconds"])
        return thing.acquire()

    def Lock(self):
        kind = self.op["make"]
        if kind not in self.made:
            self.made[kind] = getattr(self.client, kind)(self.path, self.name)
        lock = self.made[kind]
        if not self.ask(lock):
            return False
        try:
            self.hold("", self.path + "/" + lock.node, shared=kind == "ReadLock")
        finally:
            lock.release()
        return True

    ReadLock = WriteLock = Lock

    def Semaphore(self):
        if "s" not in self.made:
            self.made["s"] = self.client.Semaphore(self.path, self.name, 2)
        semaphore, session = self.made["s"], self.session()
        if not self.ask(semaphore):
            return False
        try:
            # A kazoo whose session expires while it holds the inner lock may make its lease in the next one.
            self.hold("", semaphore.create_path, session=session)
        finally:
            semaphore.release()
        return True

    def Election(self):
        if "e" not in self.made:
            self.made["e"] = self.client.Election(self.path, self.name)
        election = self.made["e"]
        election.run(lambda: self.hold("", self.path + "/" + election.lock.node))
        return True

    def Lease(self):
        duration = datetime.timedelta(seconds=self.op["seconds"])
        while not self.client.NonBlockingLease(self.path, duration, self.name):
            if self.op["mode"] != "wait":
                return False
            time.sleep(0.1)
        began = time.monotonic_ns()
        record = json.loads(self.client.get(self.path + "/lease_holder")[0])
        if record["holder"] == self.name:
            now = time.monotonic_ns()  # first: a pause after it makes the hold shorter, not longer
            left = datetime.datetime.fromisoformat(record["end"]) - datetime.datetime.utcnow()
            self.say("got", what="", text="")
            until = now + left // datetime.timedelta(microseconds=1) * 1000
            self.say("held", what="", shared=False, began=began, until=until)
            time.sleep(self.op["parts"] * self.op["pause"])
        return True

    def Put(self):
        self.client.LockingQueue(self.path).put(self.op["text"].encode())
        self.say("put", text=self.op["text"])
        return True

    def Get(self):
        # A new one each time: after an expiry get returns what others have got since.
        queue, session = self.client.LockingQueue(self.path), self.session()
        value = queue.get(timeout=self.op["seconds"])
        if value is None:
            return False
        name = queue.processing_element[0]
        self.hold(name, self.path + "/taken/" + name, session=session, text=value.decode())
        if self.op["mode"] == "release":
            return queue.release()
        if queue.consume() and self.session() == session:
            self.say("consumed", what=name, at=time.monotonic_ns())
        return True

    def SetPartitioner(self):
        p = self.client.SetPartitioner(
            self.path, self.plan["items"], identifier=self.name, time_boundary=self.op["seconds"], max_reaction_time=0.3
        )
        shown, holds = None, {}
        while not ending and not p.failed:
            share = sorted(p) if p.acquired else []
            if (p.state, share) != shown:
                shown = (p.state, share)
                self.say("share", items=share, text=p.state)
            if p.release:
                p.release_set()
            elif p.acquired:
                self.items(p, holds)
                time.sleep(self.op["pause"])
            else:
                p.wait_for_acquire(self.op["pause"])
        p.finish()
        return True

    def items(self, p, holds):
        for lock in list(p._locks):
            node = lock.path + "/" + str(lock.node)
            now = time.monotonic_ns()
            if not p.acquired or self.client.exists(node) is None:
                continue
            what = lock.path.rsplit("/", 1)[1]
            self.say("held", what=what, shared=False, began=holds.setdefault(node, now), until=now)


def end(*_):
    global ending
    ending = True


def contend(me, hosts, plan, parent):
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not without the parent
    if os.getppid() != parent:
        return
    contender = Contender(me, hosts, plan)
    try:
        contender.run()
    except BaseException:
        contender.say("failed", text=traceback.format_exc())
    contender.say("end")


def main():
    hosts, children = sys.argv[1], {}
    signal.signal(signal.SIGTERM, end)  # for the children, from their first moment on
    for line in sys.stdin:
        request = json.loads(line)
        me, signame = request["id"], request.get("signal")
        if "plan" in request:
            parent = os.getpid()
            children[me] = os.fork()
            if children[me] == 0:
                try:
                    contend(me, hosts, request["plan"], parent)
                finally:
                    os._exit(0)
            continue
        answer = {"id": me, "say": signame or "clock", "at": time.monotonic_ns()}
        if signame:
            # Its number is nobody else's until it has been waited for.
            os.kill(children[me], getattr(signal, signame))
            if signame == "SIGKILL":
                os.waitpid(children.pop(me), 0)
        os.write(1, (json.dumps(answer) + "\n").encode())


main()
