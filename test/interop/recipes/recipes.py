"""Objects of kazoo's recipes, driven by lines of JSON.

    python recipes.py ZOOKEEPER

connects, says {} when it has, and then answers each request on standard input with a line on standard output:

    {"object": "c", "make": "Counter", "args": ["/path"], "kwargs": {...}}  -> {}
    {"object": "c", "call": "__add__", "args": [1]}                         -> {"value": ...}
    {"object": "c", "get": "value"}                                         -> {"value": ...}
    {"object": "c", "list": true}                                           -> {"value": [...]}: what iterating yields
    {"object": "q", "call": "get", "text": true}                            -> bytes as text
    {"object": "q", "call": "put", "bytes": "x", "args": [...]}             -> with these bytes as the first argument
    {"object": "q", "call": "put_all", "list_of_bytes": ["x", "y"]}         -> with a list of them
    {"object": "e", "call": "run", "function": "sleep", "args": [3600]}     -> with a function of module time
    {..., "thread": true}                                                   -> {}: the call goes on in the background; that of a
                                                                               class, too, and its object is not kept

or with {"error": "..."}. Values that JSON does not know come as their repr.
"""

import datetime
import json
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry


def plain(value):
    if isinstance(value, bytes):
        return value.decode("utf-8")
    try:
        json.dumps(value)
        return value
    except (TypeError, ValueError):
        return repr(value)


def answer(client, objects, request):
    name = request["object"]
    args = list(request.get("args") or [])
    kwargs = dict(request.get("kwargs") or {})
    if "bytes" in request:
        args.insert(0, request["bytes"].encode("utf-8"))
    if "list_of_bytes" in request:
        args.insert(0, [value.encode("utf-8") for value in request["list_of_bytes"]])
    if "function" in request:
        args.insert(0, getattr(time, request["function"]))
    if "make" in request:
        if "seconds" in request:
            args.append(datetime.timedelta(seconds=request["seconds"]))
        if request.get("thread"):
            threading.Thread(target=getattr(client, request["make"]), args=args, kwargs=kwargs, daemon=True).start()
            return {}
        objects[name] = getattr(client, request["make"])(*args, **kwargs)
        return {}
    subject = objects[name]
    if request.get("thread"):
        threading.Thread(target=getattr(subject, request["call"]), args=args, kwargs=kwargs, daemon=True).start()
        return {}
    if "call" in request:
        return {"value": plain(getattr(subject, request["call"])(*args, **kwargs))}
    if "get" in request:
        return {"value": plain(getattr(subject, request["get"]))}
    if request.get("list"):
        return {"value": [plain(v) for v in subject]}
    if request.get("truth"):
        return {"value": bool(subject)}
    raise ValueError("nothing to do: %r" % request)


def main():
    # kazoo's own retries would double up to an hour.
    client = KazooClient(sys.argv[1], timeout=4, command_retry=KazooRetry(max_tries=-1, max_delay=0.5))
    client.start()
    objects = {}
    print("{}", flush=True)
    for line in sys.stdin:
        try:
            reply = answer(client, objects, json.loads(line))
        except Exception as e:
            reply = {"error": repr(e)}
        print(json.dumps(reply), flush=True)


main()
