"""The documents say what the program does."""
import json
import re
import shlex
import time

import pytest

from harness import ADMIN_KEY, CURT, ROOT, curt, run

README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
OPENAPI = ROOT / "src" / "web" / "openapi.json"  # without the fields of links, users and keys
METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


# Settings

@pytest.mark.parametrize("page, option", [("configuration.md", "--settings"), ("cli.md", "--markdown")])
def test_the_page_is_what_the_program_prints(page, option):
    assert (ROOT / "docs" / page).read_text() == curt("help", option).stdout, "run 'make docs'"


def settings():
    """variable, flag and default of each setting of the page."""
    page = (ROOT / "docs" / "configuration.md").read_text()
    for entry in page.split("\n### ")[1:]:
        flag, variable = re.search(r"^- Flag `(--[a-z-]+)`, variable `(CURT_\w+)`$", entry, re.MULTILINE).groups()
        default = re.search(r"^- Default: `([^`]*)`$", entry, re.MULTILINE)
        yield variable, flag, default[1] if default else ""


def test_every_flag_and_variable_of_the_page_takes_the_default_that_stands_there(serve, nursery):
    rows = [row for row in settings() if row[1] not in ("--listen", "--data")]
    assert len(rows) > 20
    serve(*[f"{flag}={default}" for _, flag, default in rows]).create()
    nursery.server(env={variable: default for variable, _, default in rows}).start().create()


def test_every_setting_of_the_page_is_in_the_help():
    text = curt("serve", "--help").stdout
    for _, flag, _ in settings():
        assert re.search(rf"{flag}\b", text), flag


# README

def blocks(text):
    """Commands of the indented blocks."""
    return [line.strip() for line in text.splitlines() if line.startswith("    ") and line.strip()]


def test_the_targets_that_the_documents_name_are_in_the_makefile():
    for name in ("README.md", "CONTRIBUTING.md", "docs/operations.md", "docs/configuration.md", "ARCHITECTURE.md"):
        for target in re.findall(r"(?:^    |`)make ([a-z]+)\b", (ROOT / name).read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"{name} names 'make {target}'"


def test_the_files_that_the_documents_point_at_are_there():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} points at {target}"


def play_curl(client, line):
    """What curl would do with the few options that the README uses."""
    words, method, headers, data, url = shlex.split(line)[1:], "GET", {}, None, None
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, value = words.pop(0).split(": ", 1)
            headers[name] = value
        elif word == "-d":
            data = words.pop(0)
        elif not word.startswith("-"):
            url = word
        else:
            assert word == "-i", f"an option that this test does not know: {word}"
    assert url.startswith("http://127.0.0.1:8080/")
    return client.request(method, url[len("http://127.0.0.1:8080"):], key=None, headers=headers, data=data)


def curl_lines():
    known = {"$KEY": ADMIN_KEY, "$(date +%s)": str(int(time.time()))}
    for line in blocks(README):
        for name, value in known.items():
            line = line.replace(name, value)
        if line.startswith("curl "):
            yield line


def test_the_first_steps_of_the_readme_work_as_they_are_written(server):
    made, followed, sent, counted, balanced = [play_curl(server, line) for line in curl_lines()]
    assert made.status_code == 201
    assert (followed.status_code, followed.headers["Location"]) == (302, "https://example.com/a/long/address")
    assert sent.status_code == 204
    assert (counted.status_code, balanced.status_code) == (200, 200)
    assert balanced.json()["redirects_served"] == 1 and balanced.json()["difference"] == 0


def test_the_commands_of_the_readme_work_as_they_are_written(server):
    server.create(alias="first")
    lines = [line for line in blocks(README) if line.startswith("build/curt ")]
    assert len(lines) >= 3
    for line in lines:
        typed = ["sh", "-c", 'echo "a password" | exec "$@"', "sh"]  # for those that ask for one
        done = run([*typed, CURT, *shlex.split(line)[1:], "--data", server.data])
        assert (done.returncode, done.stderr) == (0, ""), line
    assert "https://example.com/another/address" in [link["original_url"] for link in server.links()]


def test_the_changelog_knows_the_version():
    assert f"## {(ROOT / 'VERSION').read_text().strip()}" in (ROOT / "CHANGELOG.md").read_text()


# The contract

def routes():
    """(method, path) of the source, with {} for a parameter."""
    source = (ROOT / "src" / "api" / "routes.c").read_text()
    found = {(method.lower(), path) for method, path in re.findall(r'\{HTTP_([A-Z]+), "([^"]+)", (?:OPEN|KNOWN)\(', source)}
    assert len(found) > 10
    return found


@pytest.fixture(scope="module")
def contract(shared):
    return shared.get("/api/v1/openapi.json", key=None).json()


def operations(contract):
    for path, item in contract.get("paths", {}).items():
        for method, operation in item.items():
            if method in METHODS:
                yield method, path, operation


def test_every_route_is_in_the_contract_and_the_other_way_round(contract):
    written = {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path, _ in operations(contract)}
    served = routes()
    redirects = {("get", "/{}"), ("get", "/{}+"), ("post", "/{}")}  # in no table: whatever is no route is a short link
    assert written - redirects == served
    assert {("get", "/{}"), ("post", "/{}")} <= written


def test_the_contract_is_a_whole_openapi_document(contract):
    assert contract["openapi"].startswith("3.1.")
    assert contract["info"]["title"] and contract["info"]["version"] == (ROOT / "VERSION").read_text().strip()
    ids = []
    for method, path, operation in operations(contract):
        assert operation["responses"], (method, path)
        assert all(re.fullmatch(r"[1-5]\d\d|default|[1-5]XX", status) for status in operation["responses"])
        ids.append(operation.get("operationId", f"{method} {path}"))
        names = {parameter.get("name") for parameter in
                 [resolve(contract, p) for p in operation.get("parameters", []) +
                  contract["paths"][path].get("parameters", [])]
                 if parameter.get("in") == "path"}
        assert names == set(re.findall(r"\{(\w+)\}", path)), (method, path)
    assert len(ids) == len(set(ids)) > 10


def resolve(contract, node):
    while "$ref" in node:
        target = contract
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def test_every_reference_of_the_contract_leads_somewhere(contract):
    def walk(node):
        if isinstance(node, dict):
            if "$ref" in node:
                assert resolve(contract, node) is not None
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)
    walk(contract)


def test_the_contract_that_is_served_is_the_one_of_the_source_with_fields_in_their_places(contract):
    def compare(source, served):
        if isinstance(source, dict) and "$fields" in source:
            made = {"properties"} | ({"required"} & set(served))
            assert set(served) == set(source) - {"$fields"} | made
            assert set(served.get("required", [])) <= set(served["properties"])
            for name in set(source) - {"$fields"}:
                compare(source[name], served[name])
        elif isinstance(source, dict):
            assert set(source) == set(served)
            for name, child in source.items():
                compare(child, served[name])
        elif isinstance(source, list):
            assert len(source) == len(served)
            for pair in zip(source, served):
                compare(*pair)
        else:
            assert source == served
    compare(json.loads(OPENAPI.read_text()), contract)


def test_a_link_has_the_fields_that_the_contract_says(server, contract):
    schema = resolve(contract, {"$ref": "#/components/schemas/Link"})
    assert set(server.create()) == set(schema["properties"])


def test_users_and_keys_have_the_fields_that_the_contract_says(server, contract):
    made = server.post("/api/v1/users", json={"email": "ada@example.com"}).json()
    assert set(made) == set(resolve(contract, {"$ref": "#/components/schemas/User"})["properties"])
    key = server.make_key("ada", user="ada@example.com")
    assert set(key) - {"key"} == set(resolve(contract, {"$ref": "#/components/schemas/ApiKey"})["properties"])


def test_the_fields_of_a_create_are_those_that_the_contract_says(server, contract):
    """A field that is unknown is refused, with a list of those that there are."""
    for path, method, target in (("/api/v1/links", "post", "/api/v1/links"), ("/api/v1/keys", "post", "/api/v1/keys"),
                                 ("/api/v1/users", "post", "/api/v1/users"),
                                 ("/api/v1/users/{user}", "patch", "/api/v1/users/me"),
                                 ("/api/v1/links/{key}", "patch", "/api/v1/links/x"),
                                 ("/api/v1/session", "post", "/api/v1/session"), ("/{key}", "post", "/x")):
        schema = contract["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
        detail = server.request(method.upper(), target, json={"frobnicate": 1}).json()["detail"]
        assert set(re.search(r"the fields are: (.+)\.$", detail)[1].split(", ")) == set(schema["properties"]), path


def test_nobody_can_take_the_first_word_of_a_route_as_an_alias(server):
    for _, path in routes():
        word = path.split("/")[1]
        if word:
            response = server.post("/api/v1/links", json={"original_url": "https://example.com/", "alias": word})
            assert response.status_code == 400 and "reserved" in response.text, word


# ARCHITECTURE

def test_every_statement_of_the_store_is_listed_and_no_other():
    store = ROOT / "src" / "store"
    statements = {name for path in store.glob("postgres_*.c") for name in re.findall(r'\{\s*"([a-z_0-9]+)",', path.read_text())}
    statements |= {name.lower() for name in
                   re.findall(r"(?:STATEMENT|FEED)\(\s*SQL_([A-Z_]+)", (store / "sqlite_statements.h").read_text())}
    table = re.search(r"\*\*The SQL that remains\.\*\*.*?\n\n(\|.*?)\n\n", (ROOT / "ARCHITECTURE.md").read_text(), re.S)[1]
    listed = set(re.findall(r"`([a-z0-9][a-z_0-9]+)`", table))
    assert len(statements) > 150
    assert listed == statements
