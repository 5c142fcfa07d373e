#!/usr/bin/python3
"""Writes small MaxMind DB files, so that tests need no download.

    mmdb.write(path, {"192.0.2.0/24": {"country": {"iso_code": "DE"}}})
    tests/support/mmdb.py city|country|odd PATH [24|28|32 [4|6]]      one of the samples below

A file is a binary tree over the bits of an address (IPv4 is in ::/96), whose leaves point into a section of
records, and behind that a record about the file itself. Networks inside others win over them.
"""
import ipaddress
import struct
import sys

METADATA_MARKER = b"\xab\xcd\xefMaxMind.com"


class Uint16(int):
    """An integer of this very type; plain ones are uint32, or uint64 when they are larger."""


class Uint64(int):
    pass


def place(country, region=None, city=None):
    """A record in the layout of GeoLite2-City."""
    record = {"country": {"geoname_id": 1, "iso_code": country, "names": {"de": "?", "en": "?"}},
              "location": {"latitude": 48.1, "accuracy_radius": Uint16(100)}}
    if region:
        record["subdivisions"] = [{"iso_code": "X", "names": {"de": "?", "en": region}}]
    if city:
        record["city"] = {"geoname_id": 2 ** 32 - 1, "names": {"de": "?", "en": city}}
    return record


CITY = {
    "192.0.2.0/24": place("DE", "Bavaria", "Munich"),
    "198.51.100.0/24": place("US", "Virginia"),
    "203.0.113.0/24": place("JP"),
    "203.0.114.0/23": place("JP", "Tokyo", "Tokyo"),
    "203.0.115.0/24": place("JP", "Osaka", "Sakai"),
    "2001:db8:1::/48": place("FR", "Île-de-France", "Paris"),
    "2001:db8:2::/47": place("GB", "England", "London"),
}

COUNTRY = {network: {"country": record["country"]} for network, record in CITY.items()}

# What should not be there, and what other vendors have.
ODD = {
    "192.0.2.0/24": {"country": {"iso_code": 49}, "subdivisions": {"0": "no list"}, "city": {"names": ["en"]}},
    "192.0.3.0/24": place("de", "bad\u0007bell", "x" * 121),
    "192.0.4.0/24": place("DEU", "", "y" * 120),
    "192.0.5.0/24": place("É", "\u0085", "ok"),
    "192.0.6.0/24": {"country": {"iso_code": "CH"}, "subdivisions": [], "city": {"names": {"de": "Genf"}}},
    "192.0.7.0/24": {"country_code": "NL", "region": "Utrecht", "city": "Zeist"},
    "192.0.8.0/24": {"country": "AT", "region": 9, "city": True},
    "192.0.9.0/24": ["not", "a", "map"],
    "192.0.10.0/24": "neither",
}

SAMPLES = {"city": (CITY, "GeoLite2-City"), "country": (COUNTRY, "GeoLite2-Country"), "odd": (ODD, "Odd")}


class Section:
    """Encoded values, each kept once: what comes again is a pointer to its first place."""

    def __init__(self, pointers=True):
        self.data = bytearray()
        self.pointers = pointers
        self.seen = {}

    def add(self, value):
        """Appends a value and says where it begins."""
        at = len(self.data)
        if isinstance(value, dict):
            self.control(7, len(value))
            for name, member in value.items():
                self.refer(name)
                self.refer(member)
        elif isinstance(value, (list, tuple)):
            self.control(11, len(value))
            for member in value:
                self.refer(member)
        else:
            self.scalar(value)
        return at

    def refer(self, value):
        key = repr(value)
        if self.pointers and isinstance(value, str) and key in self.seen:
            self.pointer(self.seen[key])
        else:
            self.seen[key] = self.add(value)

    def pointer(self, to):
        if to < 1 << 11:
            self.data += bytes([1 << 5 | to >> 8, to & 255])
        elif to < (1 << 19) + (1 << 11):
            to -= 1 << 11
            self.data += bytes([1 << 5 | 1 << 3 | to >> 16]) + (to & 0xffff).to_bytes(2, "big")
        else:
            self.data += bytes([1 << 5 | 3 << 3]) + to.to_bytes(4, "big")

    def scalar(self, value):
        if isinstance(value, bool):
            self.control(14, int(value))
        elif isinstance(value, float):
            self.control(3, 8)
            self.data += struct.pack(">d", value)
        elif isinstance(value, int):
            kind = 5 if isinstance(value, Uint16) else 9 if isinstance(value, Uint64) or value >= 1 << 32 else 6
            body = value.to_bytes((value.bit_length() + 7) // 8, "big")
            self.control(kind, len(body))
            self.data += body
        else:
            body = value if isinstance(value, bytes) else value.encode()
            self.control(4 if isinstance(value, bytes) else 2, len(body))
            self.data += body

    def control(self, kind, size):
        extra = b""
        if size >= 285:
            size, extra = 30, (size - 285).to_bytes(2, "big")
        elif size >= 29:
            size, extra = 29, bytes([size - 29])
        self.data += bytes([kind << 5 | size] if kind <= 7 else [size, kind - 7]) + extra


def tree_of(networks, ip_version):
    """A node is a list of two: a node, an address in the data section, or None. Wide networks go in first."""
    root = [None, None]
    bits_all = 128 if ip_version == 6 else 32
    for network, at in sorted(networks, key=lambda n: n[0].prefixlen + (96 if n[0].version == 4 else 0)):
        value, length = int(network.network_address), network.prefixlen
        if network.version == 4 and ip_version == 6:
            length += 96
        if length == 0:
            root[:] = [at, at]
            continue
        node = root
        for depth in range(length):
            bit = value >> (bits_all - 1 - depth) & 1
            if depth == length - 1:
                node[bit] = at
            elif not isinstance(node[bit], list):
                node[bit] = [node[bit], node[bit]]
            node = node[bit]
    return root


def tree_bytes(root, record_size):
    nodes = [root]
    for node in nodes:  # grows as we go
        nodes += [child for child in node if isinstance(child, list)]
    numbers = {id(node): number for number, node in enumerate(nodes)}
    out = bytearray()
    for node in nodes:
        records = [numbers[id(child)] if isinstance(child, list) else
                   len(nodes) if child is None else len(nodes) + 16 + child for child in node]
        if record_size == 28:
            out += (records[0] & 0xffffff).to_bytes(3, "big")
            out += bytes([records[0] >> 24 << 4 | records[1] >> 24])
            out += (records[1] & 0xffffff).to_bytes(3, "big")
        else:
            for record in records:
                out += record.to_bytes(record_size // 8, "big")
    return out, len(nodes)


def encode(networks, database_type="GeoLite2-City", record_size=24, ip_version=6):
    section = Section()
    leaves = [(ipaddress.ip_network(network), section.add(record)) for network, record in networks.items()]
    leaves = [(network, at) for network, at in leaves if network.version <= ip_version]
    tree, node_count = tree_bytes(tree_of(leaves, ip_version), record_size)
    about = Section(pointers=False)
    about.add({
        "binary_format_major_version": Uint16(2), "binary_format_minor_version": Uint16(0),
        "build_epoch": Uint64(1700000000), "database_type": database_type, "description": {"en": "for tests"},
        "ip_version": Uint16(ip_version), "languages": ["en"], "node_count": node_count,
        "record_size": Uint16(record_size),
    })
    return bytes(tree + bytes(16) + section.data + METADATA_MARKER + about.data)


def write(path, networks, **options):
    with open(path, "wb") as file:
        file.write(encode(networks, **options))


def main():
    if not 3 <= len(sys.argv) <= 5 or sys.argv[1] not in SAMPLES:
        sys.exit(__doc__)
    networks, database_type = SAMPLES[sys.argv[1]]
    record_size, ip_version = (int(word) for word in (sys.argv[3:] + ["24", "6"][len(sys.argv) - 3:]))
    write(sys.argv[2], networks, database_type=database_type, record_size=record_size, ip_version=ip_version)


if __name__ == "__main__":
    main()
