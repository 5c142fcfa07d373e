/*
 * The data folder. It holds:
 *
 *   curt.folder   the marker: one line with the number of the format
 *   curt.lock     locked by the process that uses the folder
 *   server.json   the address of that process, readable by the folder's owner only
 *   base_url      what short links of the last server began with
 *
 * and the files of the backends.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct folder {
	char *path;
	int lock_fd;
};

/* How the command line of the same user reaches a running server. */
struct folder_server {
	char url[256];
	char token[64];
};

/*
 * Locks the folder; creates it when it is missing or empty and `create` is set. ERR_INVALID: it belongs to
 * something else, or to a newer version. ERR_NOT_FOUND: it is missing. ERR_BUSY: another process has locked it.
 */
int folder_open(struct folder *f, const char *path, bool create, struct err *e);
void folder_close(struct folder *f);

/* 0: a data folder that this version reads. ERR_INVALID and ERR_NOT_FOUND as above. Changes nothing. */
int folder_identify(const char *path, struct err *e);

/* Has a process locked the folder? Changes nothing. */
bool folder_is_busy(const char *path);

/* A path inside; the caller frees it. */
char *folder_path(const struct folder *f, const char *name);

int folder_publish(const struct folder *f, const struct folder_server *server, struct err *e);
void folder_unpublish(const struct folder *f);

/* A command that works without a server prints the same links. Returns NULL when no server ran yet; the caller frees
 * it. */
int folder_remember_base_url(const struct folder *f, struct str base_url, struct err *e);
char *folder_base_url(const struct folder *f);

/* Reads what the process that locked the folder has published; ERR_NOT_FOUND: nothing. */
int folder_find_server(const char *path, struct folder_server *ret, struct err *e);
