"""Servers of one test, or of one module."""
import itertools

import harness
import stores


class Nursery:
    """Starts servers, and sees to it that each ends well."""

    def __init__(self, folder):
        self.folder = folder
        self.numbers = itertools.count()
        self.servers = []

    def server(self, *flags, data=None, **kwargs):
        data = data or self.folder / f"data{next(self.numbers)}"
        server = harness.Server(data, *flags, **kwargs)
        self.servers.append(server)
        return server

    def __call__(self, *flags, **kwargs):
        return self.server(*flags, **kwargs).start()

    def finish(self):
        problems = []
        for server in reversed(self.servers):
            try:
                server.finish()
            except AssertionError as problem:
                problems.append(str(problem))
        for server in self.servers:
            stores.forget(server.data)
        assert not problems, "\n".join(problems)
