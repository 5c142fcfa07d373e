/* The role `sink` on a SQLite file. */
#pragma once

#include "sink/settings.h"
#include "sink/sink.h"

/* Makes the file when there is none. It is this process's alone: ERR_BUSY when another one has it. */
int sink_sqlite_open(const char *path, const struct sink_settings *settings, struct sink **ret,
                     struct err *e);
