/* Checks every file of a data folder. */
#pragma once

#include "base/findings.h"
#include "server/settings.h"

/*
 * Names each file under its path, also those that are not ours. Changes nothing; a server may be running.
 * `is_deep`: reads every record and row. Otherwise it opens each file, checks its format and takes a quick look
 * (client/sqlite_check.h). ERR_NOT_FOUND and ERR_INVALID as folder_identify.
 */
int folder_verify(const struct settings *s, bool is_deep, struct findings *f, struct err *e);
