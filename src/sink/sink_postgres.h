/* The role `sink` on a PostgreSQL database, shared by any number of workers and servers. */
#pragma once

#include "sink/settings.h"
#include "sink/sink.h"

/* Creates the tables if needed. `url` is postgres://…; messages never contain its password. */
int sink_postgres_open(const char *url, const struct sink_settings *settings, struct sink **ret,
                       struct err *e);
