#!/usr/bin/python3
"""Runs the web platform's URL tests against a curt server.

    tests/support/url_suite.py URL KEY FILE...

URL is a server, KEY an API key that may create links. FILE is of the folder url/resources of the web platform's tests,
which is not part of this tree: urltestdata.json, or a list of hosts, such as toascii.json and IdnaTestV2.json. Cases
are all absolute http and https URLs. Inputs with another scheme or none must be refused. A policy of docs/api.md excuses
a refusal only if the case is one for it and the answer names it."""
import collections
import json
import re
import sys

import requests

def cleaned(text):
    """As the standard begins: without controls and spaces at both ends, tabs and line breaks."""
    return re.sub("[\t\n\r]", "", text.strip("".join(map(chr, range(33)))))


# Name, whether an input with these credentials is a case for it, and what the answer says. The first two are rules for
# all strings of the API.
POLICIES = [
    ("half a surrogate pair", lambda text, _: re.search("[\ud800-\udfff]", text), "half of a surrogate pair"),
    ("NUL", lambda text, _: "\x00" in text, "must not contain a NUL"),
    ("control character", lambda text, _: re.search("[\x01-\x1f\x7f-\x9f]", cleaned(text)), "has a control character"),
    ("newer than Unicode 15.0", lambda text, _: re.search("[\U0002ebf0-\U0002ee5d\U000323b0-\U00033479]", text),
     "not a valid international name"),
    ("user name or password", lambda _, credentials: credentials, "user name or password"),
]


def is_absolute(row):
    """The base is not used: there is none, its scheme is another, or two slashes follow."""
    match = re.match("(https?):(//)?", cleaned(row["input"]), re.IGNORECASE)
    base = row.get("base") or "about:blank"
    return match and (match[2] or base.split(":")[0] != match[1].lower())


def url_cases(rows):
    """(input, what it gives or None, its user name and password)"""
    for row in rows:
        if is_absolute(row):
            yield row["input"], None if row.get("failure") else row["href"], row.get("username") or row.get("password")
        elif not re.match("https?:", cleaned(row["input"]), re.IGNORECASE):
            yield row["input"], None, None


def host_cases(rows):
    """What would end the host is percent-encoded, as the web platform's tests do."""
    for row in rows:
        host = re.sub(r"[:/?#\\]", lambda match: f"%{ord(match[0]):02X}", row["input"])
        if host:
            yield f"https://{host}/x", None if row["output"] is None else f"https://{row['output']}/x", None


def verdict(session, server, given, href, credentials):
    response = session.post(f"{server}/api/v1/links", data=json.dumps({"original_url": given}))
    answer = response.json()
    if response.status_code == 201:
        return "accepted, and equal" if answer["original_url"] == href else "WRONGLY ACCEPTED"
    assert response.status_code == 400, response.text
    policies = [name for name, is_case, said in POLICIES if said in answer["detail"] and is_case(given, credentials)]
    assert policies or answer["type"] == "urn:curt:invalid-url", response.text
    if href is None:
        return "refused, as expected"
    return f"refused by policy ({policies[0]})" if policies else "WRONGLY REFUSED"


def main():
    server, key, *files = sys.argv[1:]
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {key}"
    failed = False
    for name in files:
        with open(name, encoding="utf-8") as file:
            rows = [row for row in json.load(file) if isinstance(row, dict)]
        cases = list((host_cases if "output" in rows[0] else url_cases)(rows))
        counts = collections.Counter()
        for case in cases:
            said = verdict(session, server, *case)
            counts[said] += 1
            if said.isupper():
                failed = True
                print(f"{said}: {case[0]!r}, expected {case[1]!r}")
        print(f"{name}: {len(cases)} cases, {len(rows) - len(cases)} that need a base or have no host: " +
              ", ".join(f"{n} {said}" for said, n in counts.most_common()))
    return 1 if failed else 0


sys.exit(main())
