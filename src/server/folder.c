#include "server/folder.h"

#include "os/file.h"
#include "os/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>

enum { FORMAT = 1 };

static const char marker_name[] = "curt.folder";
static const char marker_head[] = "curt data folder, format ";
static const char lock_name[] = "curt.lock";
static const char server_name[] = "server.json";
static const char base_url_name[] = "base_url";

static char *join(const char *path, const char *name)
{
	char *joined = NULL;
	int r = asprintf(&joined, "%s/%s", path, name);
	ASSERT(r >= 0);
	return joined;
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
	if (!str_starts(line, head) || !str_u64(str_n(line.ptr + head.len, line.len - head.len), &format) ||
	    format == 0 || line.len + 1 != text.len)
		return err_set(e, ERR_INVALID, "the file %s/%s is damaged; restore it from a backup", path,
		               marker_name);
	if (format != FORMAT)
		return err_set(e, ERR_INVALID,
		               "the data folder %s was made by a newer version of curt (format %llu, this "
		               "version reads %d); use that version",
		               path, (unsigned long long)format, FORMAT);
	return 0;
}

/* 0: this version can read the folder. ERR_NOT_FOUND: there is no marker. */
static int marker_read(const char *path, struct err *e)
{
	char *marker CLEANUP(freep) = join(path, marker_name);
	struct buf CLEANUP(buf_release) text = {0};
	int r = file_read(marker, 4096, &text, e);
	return r < 0 ? r : marker_check(path, buf_view(&text), e);
}

static int marker_write(const char *path, struct err *e)
{
	char *marker CLEANUP(freep) = join(path, marker_name);
	char line[64];
	snprintf(line, sizeof(line), "%s%d\n", marker_head, FORMAT);
	return file_write_atomic(marker, str_of(line), 0600, e);
}

/* Missing, empty, or with the files of a first start that died: the lock and an unfinished marker. */
static bool is_unused(const char *path)
{
	DIR *dir = opendir(path);
	if (!dir)
		return errno == ENOENT;
	bool unused = true;
	for (const struct dirent *entry; unused && (entry = readdir(dir));) {
		const char *name = entry->d_name;
		unused = strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, lock_name) == 0 ||
		         strncmp(name, marker_name, strlen(marker_name)) == 0;
	}
	closedir(dir);
	return unused;
}

static int lock_take(const char *path, int *ret_fd, struct err *e)
{
	char *lock CLEANUP(freep) = join(path, lock_name);
	int r = file_lock(lock, ret_fd, e);
	if (r == ERR_BUSY)
		err_set(e, r,
		        "the data folder %s is in use by another curt process; stop it, or name another with "
		        "--data",
		        path);
	return r;
}

bool folder_is_busy(const char *path)
{
	char *lock CLEANUP(freep) = join(path, lock_name);
	int fd = os_sys.open(lock, O_RDONLY | O_CLOEXEC, 0);
	bool busy = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
	if (fd >= 0)
		os_sys.close(fd);
	return busy;
}

int folder_identify(const char *path, struct err *e)
{
	int r = marker_read(path, e);
	if (r != ERR_NOT_FOUND)
		return r;
	if (!is_unused(path))
		return err_set(e, ERR_INVALID,
		               "%s is not a data folder of curt: it has no file %s; name a new or empty "
		               "folder with --data",
		               path, marker_name);
	return err_set(e, ERR_NOT_FOUND,
	               "there is no data folder %s; start the server once, or name another with --data",
	               path);
}

int folder_open(struct folder *f, const char *path, bool create, struct err *e)
{
	int r = folder_identify(path, e);
	bool fresh = r == ERR_NOT_FOUND && create;
	if (r < 0 && !fresh)
		return r;
	int fd = -1;
	r = fresh ? dir_create(path, 0700, e) : 0;
	if (r == 0)
		r = lock_take(path, &fd, e);
	if (r < 0)
		return r;
	if (fresh)
		r = marker_write(path, e);
	if (r < 0) {
		os_sys.close(fd);
		return r;
	}
	*f = (struct folder){.path = strdup(path), .lock_fd = fd};
	ASSERT(f->path);
	folder_unpublish(f); /* of a killed server */
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

char *folder_base_url(const struct folder *f)
{
	char *path CLEANUP(freep) = folder_path(f, base_url_name);
	struct buf CLEANUP(buf_release) text = {0};
	return file_read(path, 4096, &text, NULL) == 0 && text.len > 0 ? strndup(text.data, text.len) : NULL;
}

int folder_remember_base_url(const struct folder *f, struct str base_url, struct err *e)
{
	char *path CLEANUP(freep) = folder_path(f, base_url_name);
	char *known CLEANUP(freep) = folder_base_url(f);
	return str_eq(str_of(known), base_url) ? 0 : file_write_atomic(path, base_url, 0600, e);
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
