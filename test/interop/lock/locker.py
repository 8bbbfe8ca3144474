"""Locks of kazoo, driven by lines of JSON.

    python locker.py ZOOKEEPER PATH IDENTIFIER

connects, says {} when it has, and then answers each request on standard input with a line on standard output:

    {"op": "acquire"}                                   -> {"node": ...} once the lock is its own
    {"op": "try"}                                       -> {"node": ...}, or {} when it is not to be had
    {"op": "release"}                                   -> {}
    {"op": "contenders"}                                -> {"contenders": [...]}
    {"op": "count", "times": 5, "file": ...}            -> {}: that often, under the lock, adds one to the number in the file

or with {"error": "..."}.
"""

import json
import sys
import time

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock
from kazoo.retry import KazooRetry


def count(lock, times, file):
    for _ in range(times):
        with lock:
            with open(file) as f:
                number = int(f.read())
            time.sleep(0.001)
            with open(file, "w") as f:
                f.write(str(number + 1))


def answer(lock, request):
    op = request["op"]
    if op == "acquire":
        lock.acquire()
        return {"node": lock.node}
    if op == "try":
        return {"node": lock.node} if lock.acquire(blocking=False) else {}
    if op == "release":
        lock.release()
    elif op == "contenders":
        return {"contenders": lock.contenders()}
    elif op == "count":
        count(lock, request["times"], request["file"])
    else:
        raise ValueError("unknown op %r" % op)
    return {}


def main():
    zookeeper, path, identifier = sys.argv[1:]
    # kazoo's own retries would double up to an hour.
    client = KazooClient(zookeeper, timeout=4, command_retry=KazooRetry(max_tries=-1, max_delay=0.5))
    client.start()
    lock = Lock(client, path, identifier)
    print("{}", flush=True)
    for line in sys.stdin:
        try:
            reply = answer(lock, json.loads(line))
        except Exception as e:
            reply = {"error": repr(e)}
        print(json.dumps(reply), flush=True)


main()
