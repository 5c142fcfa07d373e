"""Servers that share something."""


def launch_together(nursery, count, env, *flags):
    """They start at the same time, and share what `env` says."""
    servers = [nursery.server("--workers", "1", *flags, env=env).launch() for _ in range(count)]
    for server in servers:
        server.wait_ready()
    return servers
