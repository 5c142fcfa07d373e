#include "server/folder_verify.h"

#include "base/json_in.h"
#include "base/utf8.h"
#include "event/reader.h"
#include "os/file.h"
#include "queue/checkpoint.h"
#include "sink/sink_sqlite.h"
#include "stats/dirty_links.h"
#include "store/backends.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 1 << 28 };

struct verify {
	const char *data;
	bool is_deep, is_busy;
	struct findings *f;
};

/* --- files by name --- */

static bool lines_are_json(struct str text)
{
	while (text.len > 0) {
		struct str line = str_cut(&text, '\n');
		struct json_in in = json_in_begin(line);
		if (json_in_peek(&in) != JSON_IN_OBJECT || !json_in_skip(&in) || !json_in_finish(&in))
			return false;
	}
	return true;
}

static bool is_anything(struct str text)
{
	(void)text;
	return true;
}

static bool is_empty(struct str text)
{
	return text.len == 0;
}

static bool is_address(struct str text)
{
	return utf8_is_printable(text) &&
	       (str_starts(text, STR("http://")) || str_starts(text, STR("https://")));
}

/* Files that are read whole. Others have checks of their own. */
static const struct file_kind {
	const char *suffix;
	bool (*is_valid)(struct str text);
	const char *damage;
} file_kinds[] = {
    {"/curt.lock", is_empty, "it is not empty, as a lock is"},
    {"/links.db.lock", is_empty, "it is not empty, as a lock is"},
    {"/stats.db.lock", is_empty, "it is not empty, as a lock is"},
    {"/curt.folder", is_anything, NULL}, /* was checked first */
    {"/base_url", is_address, "it is not an address; delete it, and the next start writes it again"},
    {"/events/forwarded", checkpoint_is_valid, "its checksum is wrong; the event log is read again"},
    {"/events/counted", checkpoint_is_valid, "its checksum is wrong; the event log is read again"},
    {"/events/dirty-links", dirty_links_are_valid,
     "it is not a list of links; some click totals may stay old"},
    {"/events/dead-letters.ndjson", lines_are_json, "a line is not JSON"},
    {"/events/dead-letters.ndjson.1", lines_are_json, "a line is not JSON"},
    {"/worker/dead-letters.ndjson", lines_are_json, "a line is not JSON"},
    {"/worker/dead-letters.ndjson.1", lines_are_json, "a line is not JSON"},
};

static void verify_text(struct verify *v, const struct file_kind *kind, const char *path)
{
	struct buf CLEANUP(buf_release) text = {0};
	struct err e;
	findings_busy(v->f, path);
	int r = file_read(path, FILE_BYTES_MAX, &text, &e);
	if (r == ERR_NOT_FOUND)
		return; /* it was removed meanwhile */
	if (r < 0)
		findings_add(v->f, VERDICT_BAD, path, "cannot be checked: %s", e.text);
	else if (!kind->is_valid(buf_view(&text)))
		findings_add(v->f, VERDICT_BAD, path, "DAMAGED: %s", kind->damage);
	else
		findings_add(v->f, VERDICT_OK, path, "sound");
}

static void verify_server_file(struct verify *v, const char *path)
{
	struct folder_server server;
	struct err e;
	int r = folder_find_server(v->data, &server, &e);
	if (r < 0 && r != ERR_NOT_FOUND)
		findings_add(v->f, VERDICT_BAD, path, "%s", e.text);
	else if (!v->is_busy)
		findings_add(v->f, VERDICT_NOTE, path,
		             "left by a server that was killed; the next start removes it");
	else if (r == 0)
		findings_add(v->f, VERDICT_OK, path, "sound");
}

/* `name` is relative to the data folder, with a slash in front. */
static void verify_file(struct verify *v, const char *name, const char *path)
{
	/* These have checks of their own: databases with their logs, and what event_verify reads. */
	static const char *const others[] = {"/links.db",    "/links.db-wal", "/links.db-shm",
	                                     "/stats.db",    "/stats.db-wal", "/stats.db-shm",
	                                     "/events/boot", "/events/salt"};
	uint64_t segment;
	const char *base = strrchr(name, '/') + 1;
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (strcmp(name, others[i]) == 0)
			return;
	if (strncmp(name, "/events/", 8) == 0 && event_segment_parse(base, &segment))
		return;
	for (size_t i = 0; i < ARRAY_LEN(file_kinds); i++)
		if (strcmp(name, file_kinds[i].suffix) == 0) {
			verify_text(v, &file_kinds[i], path);
			return;
		}
	if (strcmp(name, "/server.json") == 0)
		verify_server_file(v, path);
	else if (str_ends(str_of(name), STR(".tmp")) && v->is_busy)
		findings_add(v->f, VERDICT_OK, path, "being written");
	else if (str_ends(str_of(name), STR(".tmp")))
		findings_add(v->f, VERDICT_NOTE, path,
		             "left by a process that stopped during a write; it may be deleted");
	else
		findings_add(v->f, VERDICT_NOTE, path, "not a file of curt: not checked");
}

static int is_not_dot(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static void verify_folder(struct verify *v, const char *folder)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s%s", v->data, folder);
	struct dirent **entries;
	int count = scandir(path, &entries, is_not_dot, alphasort);
	if (count < 0 && errno != ENOENT)
		findings_add(v->f, VERDICT_BAD, path, "cannot be checked: %s", strerror(errno));
	for (int i = 0; i < count; i++) {
		char name[PATH_MAX];
		int len = snprintf(name, sizeof(name), "%s/%s", folder, entries[i]->d_name);
		bool is_folder = strcmp(name, "/events") == 0 || strcmp(name, "/worker") == 0;
		if (!is_folder && len > 0 &&
		    snprintf(path, sizeof(path), "%s%s", v->data, name) < (int)sizeof(path))
			verify_file(v, name, path);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

/* --- databases --- */

/* The API sends them as they are stored. */
static bool are_tags(struct str tags)
{
	struct json_in in = json_in_begin(tags);
	return tags.len == 0 ||
	       (json_in_peek(&in) == JSON_IN_ARRAY && json_in_skip(&in) && json_in_finish(&in));
}

/* Targets are stored as they were normalised; what this requires has always held. */
static bool link_is_valid(const struct link_record *link)
{
	return is_address(link->url) && are_tags(link->tags);
}

static void check_links(const char *path, bool is_deep, bool is_in_use, struct findings *f)
{
	store_sqlite_check(path, is_deep, is_in_use, link_is_valid, f);
}

typedef void check_fn(const char *path, bool is_deep, bool is_in_use, struct findings *f);

static void verify_database(struct verify *v, const char *setting, const char *url, const char *name,
                            check_fn *check)
{
	char path[PATH_MAX], boot[PATH_MAX];
	bool is_sqlite = strncmp(url, "sqlite:", 7) == 0;
	snprintf(boot, sizeof(boot), "%s/events/boot", v->data);
	if (is_sqlite && url[7])
		snprintf(path, sizeof(path), "%s", url + 7);
	else
		snprintf(path, sizeof(path), "%s/%s", v->data, name);
	if (!is_sqlite)
		findings_add(v->f, VERDICT_NOTE, setting, "is a database elsewhere: not checked");
	if (access(path, F_OK) == 0)
		check(path, v->is_deep, v->is_busy, v->f);
	else if (is_sqlite && access(boot, F_OK) == 0)
		findings_add(v->f, VERDICT_BAD, path,
		             "MISSING: the next start would create an empty one; restore it from a backup");
	else if (is_sqlite)
		findings_add(v->f, VERDICT_OK, path, "does not exist yet");
}

int folder_verify(const struct settings *s, bool is_deep, struct findings *f, struct err *e)
{
	struct verify v = {.data = s->data, .is_deep = is_deep, .f = f};
	char events[PATH_MAX];
	int r = folder_identify(s->data, e);
	if (r < 0)
		return r;
	v.is_busy = folder_is_busy(s->data);
	verify_folder(&v, "");
	verify_folder(&v, "/events");
	verify_folder(&v, "/worker");
	snprintf(events, sizeof(events), "%s/events", s->data);
	r = event_verify(events, is_deep, v.is_busy, f, e);
	if (r == ERR_NOT_FOUND)
		findings_add(f, VERDICT_OK, events, "no event log yet");
	else if (r < 0)
		findings_add(f, VERDICT_BAD, events, "%s", e->text);
	verify_database(&v, "store.url", s->serve.store_url, "links.db", check_links);
	verify_database(&v, "sink.url", s->serve.sink_url, "stats.db", sink_sqlite_check);
	if (f->bad_count > 0 && !v.is_busy && folder_is_busy(s->data))
		findings_add(f, VERDICT_NOTE, s->data, "a server started during the check; run it again");
	return 0;
}
