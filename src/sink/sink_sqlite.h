/* The role `sink` on a SQLite file. */
#pragma once

#include "base/findings.h"
#include "sink/settings.h"
#include "sink/sink.h"

/* Creates the file if needed. ERR_BUSY when another process has it open: it is for one process. */
int sink_sqlite_open(const char *path, const struct sink_settings *settings, struct sink **ret,
                     struct err *e);

/* Looks for damage and changes nothing: client/sqlite_check.h. */
void sink_sqlite_check(const char *path, bool is_deep, bool is_in_use, struct findings *f);
