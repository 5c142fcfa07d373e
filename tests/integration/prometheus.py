"""A strict reader of Prometheus' text format, version 0.0.4: whatever it does not expect is an error."""
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
HELP = re.compile(rf"# HELP ({NAME}) (\S.*\S)")
TYPE = re.compile(rf"# TYPE ({NAME}) (counter|gauge|histogram)")
SAMPLE = re.compile(rf"({NAME})(\{{.*\}})? (\d+|\d+\.\d+|\+Inf)")
LABELS = re.compile(r'\{[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]*"(,[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]*")*\}')


class Families(dict):
    """name with labels -> value; `types` has each family's type."""

    def __init__(self):
        super().__init__()
        self.types = {}


def parse(text):
    families, current, closed = Families(), None, set()
    assert text.endswith("\n") and "\r" not in text
    lines = iter(text[:-1].split("\n"))
    for line in lines:
        if line.startswith("#"):
            help_line, type_line = HELP.fullmatch(line), TYPE.fullmatch(next(lines, ""))
            assert help_line and type_line, f"a family begins with HELP and TYPE, not with {line!r}"
            assert help_line[1] == type_line[1] and help_line[1] not in families.types, line
            closed.add(current)
            current = help_line[1]
            families.types[current] = type_line[2]
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, f"not a sample: {line!r}"
        name, labels, value = sample.groups()
        assert labels is None or LABELS.fullmatch(labels), line
        assert belongs(name, current, families.types.get(current)), f"{line!r} stands in the family {current}"
        whole = name + (labels or "")
        assert whole not in families, f"{whole} comes twice"
        families[whole] = float(value)
    for name, kind in families.types.items():
        if kind == "histogram":
            check_histogram(families, name)
        if kind == "counter":
            assert name.endswith("_total"), name
    return families


def belongs(sample, family, kind):
    if kind == "histogram":
        return sample in (f"{family}_bucket", f"{family}_sum", f"{family}_count")
    return sample == family


def check_histogram(families, name):
    series = {}
    for whole, value in families.items():
        bucket = re.fullmatch(rf'{name}_bucket\{{(?:(.*),)?le="(.*)"\}}', whole)
        if bucket:
            series.setdefault(bucket[1], []).append((float(bucket[2]), value))
    for labels, buckets in series.items():
        assert buckets == sorted(buckets) and buckets[-1][0] == float("inf")
        counts = [count for _, count in buckets]
        assert counts == sorted(counts), f"the buckets of {name} do not add up"
        suffix = f"{{{labels}}}" if labels else ""
        assert counts[-1] == families[f"{name}_count{suffix}"]
        assert families[f"{name}_sum{suffix}"] >= 0  # read after the buckets, while others count on


def read(server):
    response = server.get("/metrics", key=None)
    assert response.status_code == 200
    return parse(response.text)


def metric(server, name):
    """One sample."""
    return read(server)[name]
