#include "cmd/folder.h"

#include "os/file.h"
#include "os/sys.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { FORMAT = 1 };

static const char marker_name[] = "curt.folder";
static const char marker_head[] = "curt data folder, format ";
static const char lock_name[] = "curt.lock";
static const char server_name[] = "server.json";

static char *join(const char *path, const char *name)
{
	char *joined = NULL;
	int r = asprintf(&joined, "%s/%s", path, name);
	ASSERT(r >= 0);
	return joined;
}

static void freep(char **p)
{
	free(*p);
}

char *folder_path(const struct folder *f, const char *name)
{
	return join(f->path, name);
}

static int marker_check(const char *path, struct str text, struct err *e)
{
	uint64_t format;
	struct str head = str_of(marker_head);
	struct str rest = text;
	struct str line = str_cut(&rest, '\n');
	if (!str_starts(line, head) || !str_u64(str_n(line.ptr + head.len, line.len - head.len), &format))
		return err_set(e, ERR_INVALID, "the file %s/%s is damaged; restore it from a backup", path,
		               marker_name);
	if (format > FORMAT)
		return err_set(e, ERR_INVALID,
		               "the data folder %s was made by a newer version of curt (format %llu, this "
		               "version knows %d); "
		               "use that version",
		               path, (unsigned long long)format, FORMAT);
	return 0;
}

static int marker_settle(const char *path, bool create, struct err *e)
{
	char *marker CLEANUP(freep) = join(path, marker_name);
	struct buf CLEANUP(buf_release) text = {0};
	int r = file_read(marker, 4096, &text, e);
	if (r == 0)
		return marker_check(path, buf_view(&text), e);
	if (r != ERR_NOT_FOUND)
		return r;
	int empty = dir_is_empty(path, e);
	if (empty == ERR_NOT_FOUND && !create)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "there is no data folder %s; start the server once, or name another with --data", path);
	if (empty == 0 || (empty > 0 && !create))
		return err_set(e, ERR_INVALID,
		               "%s is not a data folder of curt: it has no file %s; name a new or empty "
		               "folder with --data",
		               path, marker_name);
	if (empty < 0 && empty != ERR_NOT_FOUND)
		return empty;
	r = dir_create(path, 0700, e);
	if (r < 0)
		return r;
	char line[64];
	snprintf(line, sizeof(line), "%s%d\n", marker_head, FORMAT);
	return file_write_atomic(marker, str_of(line), 0600, e);
}

int folder_open(struct folder *f, const char *path, bool create, struct err *e)
{
	int fd;
	int r = marker_settle(path, create, e);
	if (r < 0)
		return r;
	char *lock CLEANUP(freep) = join(path, lock_name);
	r = file_lock(lock, &fd, e);
	if (r == ERR_BUSY)
		return err_set(e, r,
		               "the data folder %s is in use by another curt process; stop it, or name "
		               "another with --data",
		               path);
	if (r < 0)
		return r;
	*f = (struct folder){.path = strdup(path), .lock_fd = fd};
	ASSERT(f->path);
	return 0;
}

void folder_close(struct folder *f)
{
	if (!f->path)
		return;
	os_sys.close(f->lock_fd);
	free(f->path);
	*f = (struct folder){0};
}

int folder_publish(const struct folder *f, const struct folder_server *server, struct err *e)
{
	char *path CLEANUP(freep) = folder_path(f, server_name);
	json_t *object = json_pack("{s:s, s:s}", "url", server->url, "token", server->token);
	char *text CLEANUP(freep) = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	if (!text)
		return err_set(e, ERR_NOMEM, "out of memory");
	return file_write_atomic(path, str_of(text), 0600, e);
}

void folder_unpublish(const struct folder *f)
{
	char *path CLEANUP(freep) = folder_path(f, server_name);
	os_sys.unlink(path);
}

int folder_find_server(const char *path, struct folder_server *ret, struct err *e)
{
	char *file CLEANUP(freep) = join(path, server_name);
	struct buf CLEANUP(buf_release) text = {0};
	int r = file_read(file, 4096, &text, e);
	if (r < 0)
		return r;
	json_t *object = json_loadb(text.data, text.len, 0, NULL);
	const char *url, *token;
	r = object && json_unpack(object, "{s:s, s:s}", "url", &url, "token", &token) == 0 ? 0 : ERR_CORRUPT;
	if (r == 0) {
		snprintf(ret->url, sizeof(ret->url), "%s", url);
		snprintf(ret->token, sizeof(ret->token), "%s", token);
	} else {
		err_set(e, r, "the file %s is damaged; restart the server", file);
	}
	json_decref(object);
	return r;
}
