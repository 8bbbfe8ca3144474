"""Writes the golden vectors of this folder.

roundrobin.json is the output of kiel's own default function, int.json that of
Python's int(), range.json that of Kafka's rule written down a second time.
Needs kiel 0.9.3 (pip install kiel==0.9.3). A vector that changes is a breaking
change: members of one group would disagree.
"""
import json
import os
import random
import sys
import unicodedata

from kiel.clients.grouped import naive_allocator

HERE = os.path.dirname(os.path.abspath(__file__))
rng = random.Random(20240229)


def write(name, vectors):
    with open(os.path.join(HERE, name), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(v) for v in vectors) + "\n]\n")


def distinct(texts):
    out = sorted(set(texts))
    rng.shuffle(out)
    return out


def names(n, kind):
    if kind == "host:port":
        return ["client%d:%d" % (rng.randrange(50), 1000 + i) for i in range(n)]
    if kind == "text":
        alphabet = "aAzZ09.-_: é߿ࠀ\uffef𐀀😀"
        return distinct("".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 8))) for _ in range(n))
    return ["m%d" % i for i in range(n)]


def items(n, kind):
    topics = {"plain": ["orders", "orders-dlq", "orders.v2", "orders_x", "o"],
              "text": ["café", "a b", "t", "t-", "t/", "😀", "\uffef", "T"]}[kind]
    return distinct("%s:%d" % (rng.choice(topics), rng.choice([rng.randrange(12), rng.randrange(130), rng.randrange(2**31)]))
                    for _ in range(n))


def odd(n):
    numbers = ["1", "01", "+1", " 1", "1 ", "1_0", "10", "-0", "-1", "2147483647", "2147483648", "99999999999999999999",
               "\u0661", "1\u0662", "\u00a07", "7\n", "000", "0"]
    return distinct("%s:%s" % (rng.choice(["t", "u", "u-", ""]), rng.choice(numbers)) for _ in range(n))


def vector(name, members, partitions):
    return {"name": name, "members": members, "items": partitions,
            "mapping": naive_allocator(sorted(members), sorted(partitions))}


def roundrobin():
    out = [
        vector("kiel's own test",
               ["client1:1233", "client1:4444", "client2:5555"],
               ["t1:0", "t1:1", "t2:0", "t2:3", "t2:6", "t2:7", "t4:8"]),
        vector("ids sort as text", ["a", "b"], ["t:%d" % i for i in range(12)]),
        vector("more members than partitions", ["a", "b", "c", "d"], ["t:0", "t:1"]),
        vector("one member", ["a"], ["t:0", "t:1", "u:0"]),
        vector("no partitions", ["a"], []),
        vector("no members", [], ["t:0"]),
        vector("nobody, nothing", [], []),
        vector("long names", ["x" * 300, "x" * 299, "x" * 299 + "y"], ["t" * 249 + ":%d" % i for i in range(5)]),
    ]
    for i in range(60):
        out.append(vector("random %d" % i, names(rng.randrange(1, 12), rng.choice(["host:port", "text", "m"])),
                          items(rng.randrange(40), rng.choice(["plain", "text"]))))
    for i in range(40):
        out.append(vector("odd spelling %d" % i, names(rng.randrange(1, 6), "m"), odd(rng.randrange(1, 30))))
    return out


def ints():
    texts = ["", "0", "1", "01", "+1", "-1", "-0", "+-1", "--1", "1-", " 1", "1 ", " 1 ", "+ 1", "1 2", "\t1\n", "1\x00", "\x1c1", "1\x1f",
             "1_0", "_1", "1_", "1__0", "+_1", "-_1", "0_0", "00", "0x1", "1.0", "1e3", "1L", "one", "None", "True", "\u00bd", "\u00b2", "\u4e00",
             "2147483647", "2147483648", "-2147483648", "4294967297", "9223372036854775808", "18446744073709551616",
             "0" * 30 + "7", "1" * 100, "\u200b1", "\ufeff1", "1\u0661", "\u0661_1", "\u0661\u0662", "-\u0661"]
    for c in map(chr, range(sys.maxunicode + 1)):
        if c.isspace():
            texts += [c + "1", "1" + c, "1" + c + "1"]
        elif unicodedata.category(c) == "Nd":
            texts.append(c)
    out = []
    for t in texts:
        try:
            value = str(int(t))
        except ValueError:
            value = None
        out.append({"text": t, "value": value})
    return out


def ranges():
    out = []
    for i in range(40):
        members = names(rng.randrange(1, 9), rng.choice(["text", "m"]))
        topics = {t: sorted(rng.sample(range(40), rng.randrange(1, 20))) if rng.random() < .5 else list(range(rng.randrange(1, 20)))
                  for t in rng.sample(["orders", "orders-dlq", "o", "café", "t2", "t10"], rng.randrange(1, 6))}
        mapping = {}
        for topic, ids in topics.items():
            for k, m in enumerate(sorted(members)):
                q, r = divmod(len(ids), len(members))
                start = q * k + min(k, r)
                mine = ids[start:start + q + (k < r)]
                if mine:
                    mapping.setdefault(m, {})[topic] = sorted(mine, key=str)
        out.append({"name": "random %d" % i, "members": members,
                    "items": ["%s:%d" % (t, p) for t, ids in topics.items() for p in ids], "mapping": mapping})
    return out


write("roundrobin.json", roundrobin())
write("int.json", ints())
write("range.json", ranges())
