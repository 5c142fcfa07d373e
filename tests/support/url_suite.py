#!/usr/bin/python3
"""Runs the web platform's URL tests against a curt server.

    tests/support/url_suite.py URL KEY urltestdata.json [IdnaTestV2.json ...]

The files are in the folder url/resources of the web platform's tests; they are not part of this tree. URL is a server,
KEY an API key that may create links. Cases are absolute http and https URLs; what curt refuses by policy is counted
apart."""
import collections
import json
import re
import sys

import requests

POLICY = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def cleaned(text):
    """As the standard begins: without controls and spaces at both ends, tabs and line breaks."""
    return re.sub("[\t\n\r]", "", text.strip("".join(map(chr, range(33)))))


def url_cases(rows):
    for row in rows:
        if isinstance(row, dict) and row.get("base") is None and re.match("https?:", cleaned(row["input"]), re.IGNORECASE):
            refused = (POLICY.search(cleaned(row["input"])) or "\0" in row["input"]  # no string of the API has it
                       or row.get("username") or row.get("password"))
            yield row["input"], None if row.get("failure") else row["href"], bool(refused)


def host_cases(rows):
    for row in rows:
        if isinstance(row, dict) and not re.search(r"[/\\?#:@\[\]]", row["input"]):
            href = None if row["output"] is None else f"https://{row['output']}/"
            yield f"https://{row['input']}/", href, bool(POLICY.search(row["input"]) or not row["input"])


def verdict(session, server, case):
    given, href, is_policy = case
    try:
        answer = session.post(f"{server}/api/v1/links", data=json.dumps({"original_url": given}))
    except UnicodeError:
        return "policy"
    got = answer.json()["original_url"] if answer.status_code == 201 else None
    assert answer.status_code in (201, 400), answer.text
    if is_policy:
        return "policy" if got is None else "POLICY NOT KEPT"
    if href is None:
        return "refused, as expected" if got is None else "WRONGLY ACCEPTED"
    return "accepted, and equal" if got == href else "WRONGLY REFUSED" if got is None else "DIFFERENT"


def main():
    server, key, *files = sys.argv[1:]
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {key}"
    failed = False
    for name in files:
        with open(name, encoding="utf-8") as file:
            rows = json.load(file)
        cases = list((url_cases if "urltestdata" in name else host_cases)(rows))
        counts = collections.Counter()
        for case in cases:
            said = verdict(session, server, case)
            counts[said] += 1
            if said.isupper():
                failed = True
                print(f"{said}: {case[0]!r}, expected {case[1]!r}")
        print(f"{name}: {len(cases)} cases: " + ", ".join(f"{n} {said}" for said, n in counts.most_common()))
    return 1 if failed else 0


sys.exit(main())
