/*
 * The data folder. It holds `curt.folder` (a line that says so, with the format's number), `curt.lock`
 * (locked by the process that works in it), `server.json` (how to reach that process, readable by the
 * folder's owner only), and the backends' files.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct folder {
	char *path;
	int lock_fd;
};

/* What a running server tells the command line of the same user. */
struct folder_server {
	char url[256];
	char token[64];
};

/*
 * Takes the folder for this process alone; makes it when it is missing or empty and `create` is set.
 * ERR_INVALID with a sentence when it is not ours or from a newer version, ERR_NOT_FOUND when it is not
 * there, ERR_BUSY when another process works in it.
 */
int folder_open(struct folder *f, const char *path, bool create, struct err *e);
void folder_close(struct folder *f);

/* Does a process work in the folder at `path`? Changes nothing. */
bool folder_is_busy(const char *path);

/* A path inside; the caller frees it. */
char *folder_path(const struct folder *f, const char *name);

int folder_publish(const struct folder *f, const struct folder_server *server, struct err *e);
void folder_unpublish(const struct folder *f);

/* Of the process that holds the folder at `path`; ERR_NOT_FOUND when it has published nothing. */
int folder_find_server(const char *path, struct folder_server *ret, struct err *e);
