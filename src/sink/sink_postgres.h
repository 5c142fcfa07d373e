/* The role `sink` on a PostgreSQL database, which any number of workers and servers share. */
#pragma once

#include "sink/settings.h"
#include "sink/sink.h"

/* Makes the tables when there are none. `url` is postgres://...; sentences never repeat its password. */
int sink_postgres_open(const char *url, const struct sink_settings *settings, struct sink **ret,
                       struct err *e);
