"""Writes dumps.txt: what Python's json.dumps makes of lists of strings.

A line is: the strings in hexadecimal UTF-8, each followed by a comma; a tab; the JSON.
Run: python3 dumps.py > dumps.txt
"""

import json
import random


def line(items):
    print("".join(i.encode().hex() + "," for i in items) + "\t" + json.dumps(items))


line([])
line([""])
line(["t:0"])
line(["caf\u00e9:0", "t:10", "t:2"])
line(["a\"b", "a\\b", "a/b", "a<b", "a>b", "a&b", "a'b", "a b", "~", "\x7f", "\x80", "\xa0"])
line(["\u2028", "\u2029", "\ud7ff", "\ue000", "\ufeff", "\ufffd", "\ufffe", "\uffff", "\U00010000", "\U0001f600", "\U0010ffff"])
for c in range(0x20):
    line(["x" + chr(c) + "y"])
line(sorted("topic-%d:%d" % (t, p) for t in range(3) for p in range(12)))
rng = random.Random(7)
for _ in range(100):
    def char():
        while True:
            c = rng.randrange(rng.choice([0x80, 0x800, 0x10000, 0x110000]))
            if not 0xD800 <= c <= 0xDFFF:
                return chr(c)
    line(["".join(char() for _ in range(rng.randrange(9))) for _ in range(rng.randrange(5))])
