"""The documents say what the program does."""
import json
import pathlib
import re
import time

import pytest

import prometheus
import stores
from reconciliation import link_stats, settled
from harness import CURT, ROOT, assert_problem, clean_env, curt, run

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


def test_the_example_of_a_settings_file_is_right(tmp_path):
    example, = blocks((ROOT / "docs" / "configuration.md").read_text(), "ini")
    (tmp_path / "curt.conf").write_text(example)
    report = curt("doctor", "--json", "--config", tmp_path / "curt.conf", "--data", tmp_path / "none")
    assert json.loads(report.stdout)["checks"][0] == {"name": "settings", "status": "ok", "detail": "are valid"}


def test_every_setting_of_the_page_is_in_the_help():
    text = curt("serve", "--help").stdout
    for _, flag, _ in settings():
        assert re.search(rf"{flag}\b", text), flag


# Metrics

def documented_metrics():
    """(name, type) of the page, by section."""
    sections = {}
    for section in (ROOT / "docs" / "metrics.md").read_text().split("\n## ")[1:]:
        sections[section.splitlines()[0]] = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", section, re.MULTILINE))
    return sections


def test_the_page_of_metrics_is_what_the_program_prints():
    assert (ROOT / "docs" / "metrics.md").read_text() == curt("help", "--metrics").stdout


def test_a_server_has_exactly_the_documented_metrics(shared):
    sections = documented_metrics()
    cached = sections["curt serve with cache.url"] if stores.CACHED else set()
    assert set(prometheus.read(shared).types.items()) == sections["Every process"] | sections["curt serve"] | cached


def test_metrics_are_in_base_units_and_documented_once():
    rows = [row for section in documented_metrics().values() for row in section]
    assert len({name for name, _ in rows}) == len(rows) > 60
    for name, kind in rows:
        assert (kind == "counter") == name.endswith("_total"), name
        assert kind != "histogram" or name.endswith("_seconds"), name
        assert not re.search(r"(milli|micro|nano)|_(ms|us|ns|kb|mb)(_|$)", name), name


# Pages

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED_ADDRESS = "127.0.0.1:8080"
CURL = pathlib.Path("/usr/bin/curl")


def blocks(text, language):
    """The fenced blocks of that language, in order."""
    return [code for word, code in FENCE.findall(text) if word == language]


def run_blocks(page, server, folder):
    """Runs every `sh` block of a page in one shell, in order, as a reader would paste them: in a folder that has the
    server's data in `data`, with curt on the PATH. Commands that ask for a password get one. A 4xx or 5xx response to
    curl is a failure, as is any other command that fails."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "curl").write_text(f'#!/bin/sh\nexec {CURL} --silent --show-error --fail-with-body "$@"\n')
    (tools / "curl").chmod(0o755)
    (tools / "curt").symlink_to(CURT)
    (folder / "build").symlink_to(CURT.parent)
    code = "\n".join(blocks((ROOT / page).read_text(), "sh"))
    assert code, f"{page} has no block to run"
    script = folder / "page.sh"
    script.write_text(code.replace(PRINTED_ADDRESS, f"127.0.0.1:{server.port}"))
    env = clean_env(**stores.settings_of(server.data))
    env["PATH"] = f"{tools}:{env['PATH']}"
    done = run(["sh", "-c", 'yes "a password" | sh -eux "$1"', "sh", script], env=env, cwd=folder)
    assert done.returncode == 0, f"{page}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def reader(nursery, tmp_path):
    """A server with its data where `make run` has it."""
    return nursery.server("--workers", "2", data=tmp_path / "data").start()


def test_the_blocks_of_the_readme_work_as_they_are_written(reader, tmp_path):
    said = run_blocks("README.md", reader, tmp_path)
    assert "HTTP/1.1 302 Found" in said and "Location: https://example.com/a/long/address" in said
    assert '"difference":0' in said
    counted = settled(reader)
    assert (counted["redirects_served"], counted["impressions_counted"]) == (1, 1)
    assert link_stats(reader, "first")["clicks"] == 1
    assert "https://example.com/another/address" in [link["original_url"] for link in reader.links()]


def test_the_blocks_of_the_quick_start_work_as_they_are_written(reader, tmp_path):
    run_blocks("docs/quick-start.md", reader, tmp_path)
    counted = settled(reader)
    assert counted["redirects_served"] >= 1 and counted["impressions_counted"] >= 1
    assert "ada@example.com" in [user["email"] for user in reader.users()]


@pytest.mark.parametrize("page", ["docs/api.md", "docs/events.md", "docs/operations.md"])
def test_the_blocks_of_a_page_work_as_they_are_written(reader, tmp_path, page):
    run_blocks(page, reader, tmp_path)
    sends_events = "/event " in "".join(blocks((ROOT / page).read_text(), "sh"))
    assert (settled(reader)["impressions_counted"] > 0) == sends_events, "an event that is shown is taken and counted"


def test_no_page_has_blocks_that_no_test_runs():
    tried = {"README.md", "quick-start.md", "api.md", "events.md", "operations.md"}
    assert {path.name for path in PAGES if blocks(path.read_text(), "sh")} <= tried


def test_every_setting_of_an_example_file_exists():
    known = {variable for variable, _, _ in settings()}
    for path in PAGES:
        for block in blocks(path.read_text(), "ini"):
            section = None
            for line in block.splitlines():
                if line.startswith("["):
                    section = line.strip("[]")
                elif section and re.match(r"#?\w+ =", line):
                    name = line.lstrip("#").split(" =")[0]
                    assert f"CURT_{section}_{name}".upper() in known, f"{path.name}: {section}.{name}"


def test_every_flag_of_an_example_command_exists():
    for path in PAGES:
        for line in "\n".join(blocks(path.read_text(), "console")).replace("\\\n", " ").splitlines():
            command = re.match(r"[$#] (?:.* )?(?:build/)?curt ([a-z]+)( [a-z][a-z-]*)?(.*)", line)
            if command:
                words = [command[1], *(command[2] or "").split()]
                said = curt("help", *words)
                text = said.stdout if said.returncode == 0 else curt("help", words[0]).stdout
                for flag in re.findall(r"(?<= )--[a-z-]+", command[3]):
                    assert re.search(rf"{flag}\b", text), f"{path.name}: {line}"


def test_the_targets_that_the_documents_name_are_in_the_makefile():
    for path in PAGES:
        for target in re.findall(r"(?:^\$ |^    |`)make ([a-z]+)\b", path.read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"{path.name} names 'make {target}'"


def test_the_files_that_the_documents_point_at_are_there():
    for path in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} points at {target}"


def test_the_example_configuration_is_accepted_as_it_is(nursery):
    server = nursery.server("--config", ROOT / "deploy" / "curt.conf").start()
    server.create(alias="first")
    assert server.target("first") == "https://example.com/"


def test_the_changelog_knows_the_version():
    assert f"## {(ROOT / 'VERSION').read_text().strip()}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_example_configuration_shows_the_defaults():
    defaults = {variable: default for variable, _, default in settings()}
    head, rest = (ROOT / "deploy" / "curt.conf").read_text().split("# --- Defaults ---")
    shown, section = {}, None
    for line in rest.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, value = (part.strip() for part in line.split("=", 1))
            shown[f"CURT_{section}_{name}".upper()] = value
    assert "base_url = " in head and len(shown) > 50
    assert shown == {variable: defaults[variable] for variable in shown}


# The contract

def routes():
    """(method, path) of the source."""
    source = (ROOT / "src" / "api" / "routes.c").read_text()
    found = {(method.lower(), path) for method, path in re.findall(r'\{HTTP_([A-Z]+), "([^"]+)", (?:PUBLIC|AUTH)\(', source)}
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
    written = {(method, path) for method, path, _ in operations(contract)}
    served = routes()
    redirects = {("get", "/{key}"), ("get", "/{key}+"), ("post", "/{key}")}  # in no table: whatever is no route is a short link
    assert written == served | redirects


def test_every_type_that_an_answer_has_is_in_the_contract(server, contract):
    """Browsers and forms get HTML, and everybody else problems."""
    server.create("https://example.com/", alias="plain")
    server.create("https://example.com/", alias="locked", password="open sesame")
    server.create("https://example.com/", alias="private", visibility="private")
    form = "application/x-www-form-urlencoded"
    asked = [("get", path, key, None, None) for path in ("/{key}", "/{key}+") for key in ("plain", "locked", "private", "none")]
    asked += [("post", "/{key}", key, "password=wrong", form) for key in ("plain", "locked", "private", "none")]
    asked += [("post", "/api/v1/session", None, body, form) for body in ("", "email=a%40b&password=x", "email=x" + "x" * 20_000)]
    asked += [("post", "/api/v1/session", None, '{"email": "a@b", "password": "x"}', "application/json"), ("get", "/", None, None, None)]
    seen = set()
    for method, path, key, body, kind in asked:
        for accept in ("text/html", "application/json"):
            headers = {"Accept": accept, **({"Content-Type": kind} if kind else {})}
            response = server.request(method.upper(), path.replace("{key}", key or ""), key=None, data=body, headers=headers)
            answer = contract["paths"][path][method]["responses"][str(response.status_code)]
            written = resolve(contract, answer).get("content", {})
            if response.content:
                found = response.headers["Content-Type"].split(";")[0]
                assert found in written, (method, path, key, response.status_code, found)
                seen.add((response.status_code, found))
    assert {(401, "text/html"), (404, "text/html"), (400, "text/html"), (413, "text/html"), (200, "text/html"),
            (401, "application/problem+json"), (404, "application/problem+json")} <= seen


# Visitors and monitoring may add what they like: nothing of the answer depends on it.
TAKE_ANY_QUERY = ("/", "/healthz", "/readyz", "/metrics", "/{key}", "/{key}+")


def test_a_route_takes_the_query_parameters_of_the_contract_and_no_others(server, contract):
    server.create(alias="known")
    for method, path, operation in operations(contract):
        given = [resolve(contract, p) for p in operation.get("parameters", []) + contract["paths"][path].get("parameters", [])]
        names = [parameter["name"] for parameter in given if parameter["in"] == "query"]
        target = re.sub(r"\{\w+\}", "known", path)
        if path in TAKE_ANY_QUERY:
            assert server.request(method.upper(), f"{target}?frobnicate=1&frobnicate=2", json={"password": "x"}).status_code != 400
            continue
        assert "400" in operation["responses"], (method, path)
        detail = assert_problem(server.request(method.upper(), f"{target}?frobnicate=1"), 400, "'frobnicate' is unknown")
        said = re.search(r"the parameters are: (.+)\.$", detail["detail"])
        assert (said[1].split(", ") if said else []) == names, (method, path)
        assert detail["type"] == "urn:curt:invalid-parameter"
        for name in names:
            answer = server.request(method.upper(), f"{target}?{name}=1&{name}=1")
            assert_problem(answer, 400, f"'{name}' appears twice")
    assert server.get("/known", key=None).status_code == 302, "nothing was changed"


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


def test_every_error_type_of_the_source_is_in_the_table_of_errors():
    source = "".join(path.read_text() for path in (ROOT / "src").glob("*/*.c"))
    calls = re.findall(r'(?:problem_reply(?:_field)?|reply_failed|reply_locked|code =)[^;"]*?"([a-z]+(?:-[a-z]+)+)"', source)
    page = (ROOT / "docs/api.md").read_text()
    table = page[page.index("## Errors"):page.index("## Idempotency")]
    assert len(set(calls)) > 35 and {"invalid-body", "invalid-field", "invalid-url", "alias-taken"} <= set(calls)
    assert {code for code in calls if f"`{code}`" not in table} == set()


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


def parameters_of(contract, path):
    return [resolve(contract, each) for each in contract["paths"][path]["get"]["parameters"]]


TIMES = ["1970-01-01", "9999-12-31T23:59:59Z", "2027-01-31t12:00:00.5+01:00", "2028-02-29", "0",
         "100000000", "249999999999999", 0, 100_000_000, 253_402_300_799_999]
NO_TIMES = ["", "now", "1969-12-31", "2027-13-01", "2027-01-32", "2027-02-30",
            "2027-11-31", "2027-01-31T24:00:00Z", "2027-01-31T12:00:00", "2027-01-31T12:00Z",
            "2027-01-31x", "20270131", "279467867241770", "-1", -1, 1, 99_999_999, 253_402_300_800_000]


def fits(schema, value):
    """By the keywords that the schema of times has."""
    if "const" in schema:
        return value == schema["const"]
    if schema["type"] == "string":
        return isinstance(value, str) and bool(re.search(schema["pattern"], value))
    return isinstance(value, int) and schema["minimum"] <= value <= schema["maximum"]


def test_what_the_contract_calls_a_time_the_server_takes(server, contract):
    server.create(alias="timed")
    schemas = contract["components"]["schemas"]["Time"]["anyOf"]
    for value in TIMES + NO_TIMES:
        response = server.patch("/api/v1/links/timed", json={"not_before": value, "expires_at": None})
        assert response.status_code == (200 if value in TIMES else 400), (value, response.text)
        assert any(fits(schema, value) for schema in schemas) == (value in TIMES), value
    place = {"$ref": "#/components/schemas/Time"}
    bodies = [contract["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
              for path in ("/api/v1/createURL", "/api/v1/links", "/api/v1/keys")]
    for properties, name in zip(bodies, ("expire_date", "expires_at", "expires_at")):
        assert properties[name]["anyOf"] == [place, {"type": "null"}]
    assert contract["components"]["schemas"]["Event"]["properties"]["ts"].items() >= place.items()
    for path in ("/api/v1/links/{key}/stats", "/api/v1/links/{key}/visits", "/api/v1/stats", "/api/v1/orphans"):
        parameters = {each["name"]: each["schema"] for each in parameters_of(contract, path)}
        assert parameters["from"] == parameters["to"] == place


def test_a_url_that_the_contract_forbids_is_refused(server, contract):
    bodies = [contract["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
              for path in ("/api/v1/createURL", "/api/v1/links")]
    pattern = bodies[0]["original_url"]["pattern"]
    assert pattern == bodies[1]["original_url"]["pattern"] == bodies[1]["expired_url"]["pattern"]
    for url in ("http://a", "HTTPS:a", " \x01http:\\\\a/\tb\r\nc \x1f ", "https://[::1]/?x#y"):
        assert re.search(pattern, url), url
        assert server.create(url)
    for url in ("", "ftp://a", "http:", "https://", "http://?x", "http:///#x", "http://\x01", "http://a/\x1bb", "http://a/\x7f",
                "http://a\x85b", "\xa0http://a"):
        assert not re.search(pattern, url), url
        assert server.post("/api/v1/links", json={"original_url": url}).status_code == 400, url


def test_the_contract_says_which_steps_and_dimensions_go_together(server, contract):
    for path in ("/api/v1/links/{key}/stats", "/api/v1/stats"):
        pattern = next(each for each in parameters_of(contract, path) if each["name"] == "by")["schema"]["pattern"]
        server.create(alias=f"by{len(path)}")
        for by in ("day", "os", "os,day", "day,os", "bot,os,week,source", "day,week", "os,day,os,day", "os,", "", "year"):
            response = server.get(path.replace("{key}", f"by{len(path)}"), params={"by": by})
            assert response.status_code == (200 if re.search(pattern, by) else 400), (by, response.text)


def test_an_event_whose_texts_the_contract_forbids_is_refused(server, contract):
    schema = contract["components"]["schemas"]["Event"]["properties"]
    event = {"id": "e", "userId": "u", "adId": "a", "ts": int(time.time())}
    for name in ("id", "userId", "adId"):
        for value in ("\x01\n", "a\0b"):
            response = server.request("POST", "/event", json={**event, name: value})
            assert response.status_code == (204 if re.search(schema[name]["pattern"], value) else 400), (name, response.text)


def test_every_operation_may_find_the_request_too_long(server, contract):
    for method, path, operation in operations(contract):
        target = re.sub(r"\{\w+\}", "known", path)
        assert server.request(method.upper(), f"{target}?{'x' * 20_000}").status_code == 414
        assert server.request(method.upper(), target, headers={"X-Long": "x" * 60_000}).status_code == 431
        for status in ("414", "431"):
            assert "application/problem+json" in resolve(contract, operation["responses"][status])["content"], (method, path)


def test_the_key_of_a_short_form_delete_may_be_in_the_query_beside_a_body(server, contract):
    body = contract["paths"]["/api/v1/deleteURL"]["delete"]["requestBody"]["content"]["application/json"]["schema"]
    assert "required" not in body
    server.create(alias="gone")
    assert server.request("DELETE", "/api/v1/deleteURL?url_key=gone", json={}).status_code == 200


def test_nobody_can_take_the_first_word_of_a_route_as_an_alias(server):
    for _, path in routes():
        word = path.split("/")[1]
        if word:
            response = server.post("/api/v1/links", json={"original_url": "https://example.com/", "alias": word})
            assert response.status_code == 400 and "reserved" in response.text, word


# Threads

def test_the_threads_of_the_page_have_the_names_that_the_source_gives_them():
    page = (ROOT / "docs" / "internals" / "threading.md").read_text().split("## Shared data")[0]
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.c"))
    names = {name for row in re.findall(r"^\| ([a-z][\w, -]*) \|", page, re.MULTILINE) for name in row.split(", ")}
    assert len(names) > 25
    for name in names - {"thread", "task", "main", "reader"}:
        assert f'"{name}"' in source or name == "worker-N", name


# ARCHITECTURE

def test_every_statement_of_the_store_is_listed_and_no_other():
    store = ROOT / "src" / "store"
    statements = {name for path in store.glob("postgres_*.c") for name in re.findall(r'\{\s*"([a-z_0-9]+)",', path.read_text())}
    statements |= {name.lower() for name in
                   re.findall(r"(?:STATEMENT|FEED)\(\s*SQL_([A-Z_]+)", (store / "sqlite_statements.h").read_text())}
    table = re.search(r"\*\*The SQL that remains\.\*\*.*?\n\n(\|.*?)\n(?:\n|\Z)", (ROOT / "ARCHITECTURE.md").read_text(), re.S)[1]
    listed = set(re.findall(r"`([a-z0-9][a-z_0-9]+)`", table))
    assert len(statements) > 150
    assert listed == statements
