"""One member of a group: kiel's own PartitionAllocator, driven by lines of JSON.

    python member.py ZOOKEEPER GROUP NAME SEED

joins, says {} when it has, and then answers each request on standard input with a line on standard output:

    {"op": "add", "partitions": {"topic": [1, 2]}}      -> {}
    {"op": "remove", "partitions": {"topic": [1, 2]}}   -> {}
    {"op": "state"}                                     -> {"members": [...], "partitions": [...], "mapping": {...}}
    {"op": "leave"}                                     -> {}, then it ends

or with {"error": "..."}. A member whose session has expired adds "expired": true to each answer: kiel does not join again, so
it is as good as gone.
"""

import json
import sys
import threading

from kazoo.client import KazooState
from kiel.clients.grouped import naive_allocator
from kiel.zookeeper.allocator import PartitionAllocator
from kiel.zookeeper.shared_set import SharedSet

# kiel hands text to kazoo, which takes bytes under Python 3. These are the bytes that it writes under Python 2.
SharedSet.serialize = lambda self, data: json.dumps(list(data)).encode()


def answer(allocator, request):
    op = request["op"]
    if op == "add":
        allocator.add_partitions(request["partitions"])
    elif op == "remove":
        # allocator.remove_partitions joins a topic's name with a list, which raises.
        allocator.shared_set.remove_items(
            {"%s:%d" % (topic, n) for topic, numbers in request["partitions"].items() for n in numbers}
        )
    elif op == "state":
        return {
            "members": sorted(allocator.members),
            "partitions": sorted(allocator.partitions),
            "mapping": allocator.mapping,
        }
    elif op == "leave":
        allocator.stop().result()
    else:
        raise ValueError("unknown op %r" % op)
    return {}


def main():
    zookeeper, group, name, seed = sys.argv[1:]
    allocator = PartitionAllocator([zookeeper], group, name, naive_allocator)
    allocator.start(json.loads(seed)).result()
    expired = threading.Event()
    allocator.conn.add_listener(lambda state: expired.set() if state == KazooState.LOST else None)

    def reply(message):
        if expired.is_set():
            message["expired"] = True
        print(json.dumps(message), flush=True)

    reply({})
    for line in sys.stdin:
        request = json.loads(line)
        lost = expired.is_set()
        try:
            message = answer(allocator, request)
            if request["op"] == "leave" and not lost:
                expired.clear()  # kazoo calls a session that was closed in order LOST too
        except Exception as e:
            message = {"error": repr(e)}
        reply(message)
        if request["op"] == "leave":
            return


main()
