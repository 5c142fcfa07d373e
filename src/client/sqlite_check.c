#include "client/sqlite_check.h"

#include "os/sys.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	HEADER_BYTES = 100,
	HEADER_BYTES_FIRST = 24, /* all that a file of one page has: its tables are still in the log */
	PAGE_BYTES = 4096,
	WAL_HEADER_BYTES = 32,
	FRAME_HEADER_BYTES = 24,
	PAGE_BYTES_MAX = 65536,
	STEPS_PER_LOOK = 1000000, /* of SQLite's machine: some ten milliseconds */
	LOOKS_MAX = 5,
};

/* A second descriptor of a file that SQLite has open would drop SQLite's locks when it is closed, so files are
 * read before SQLite opens them. */
static int open_file(const char *path, const char *suffix, uint64_t *ret_size)
{
	char name[4096];
	struct stat st;
	snprintf(name, sizeof(name), "%s%s", path, suffix);
	int fd = os_sys.open(name, O_RDONLY | O_CLOEXEC, 0);
	if (fd >= 0)
		*ret_size = fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
	return fd;
}

static bool read_at(int fd, void *to, size_t len, uint64_t at)
{
	return os_sys.pread(fd, to, len, (off_t)at) == (ssize_t)len;
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t v;
	memcpy(&v, at, sizeof(v));
	return be32toh(v);
}

/* --- the header --- */

/* The fields of every file that we create: at, length, bytes. Some are not looked at by SQLite. */
static const struct {
	uint8_t at, len;
	const char *bytes, *what;
} header_fields[] = {
    {0, 16, "SQLite format 3", "it does not begin as a SQLite database does"},
    {16, 2, "\x10\x00", "its page size is not 4096"},
    {20, 4, "\x00\x40\x20\x20", "the header's fixed bytes 20 to 23 are wrong"},
    {44, 4, "\0\0\0\4", "the header's schema format is not 4"},
    {48, 4, "\0\0\0\0", "the header's cache size is not 0"},
    {52, 4, "\0\0\0\0", "the header says that the file vacuums itself"},
    {56, 4, "\0\0\0\1", "the header's text encoding is not UTF-8"},
    {64, 4, "\0\0\0\0", "the header says that the file vacuums itself"},
    {72, 20, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "the header's reserved bytes are not 0"},
};

static void check_header(const char *path, struct buf *report)
{
	uint8_t header[HEADER_BYTES];
	uint64_t size = 0;
	int fd = open_file(path, "", &size);
	if (fd < 0) {
		buf_printf(report, "cannot open it: %s", strerror(errno));
		return;
	}
	if (size == 0)
		; /* its first transaction is still in the log, or was never made */
	else if (!read_at(fd, header, sizeof(header), 0))
		buf_printf(report, "its header cannot be read");
	else
		for (size_t i = 0; i < ARRAY_LEN(header_fields) && report->len == 0; i++)
			if ((size > PAGE_BYTES || header_fields[i].at < HEADER_BYTES_FIRST) &&
			    memcmp(header + header_fields[i].at, header_fields[i].bytes,
			           header_fields[i].len) != 0)
				buf_printf(report, "%s", header_fields[i].what);
	/* 2: with a log; 1: without, as VACUUM INTO makes it */
	if (size > 0 && report->len == 0 && (header[18] != header[19] || header[18] < 1 || header[18] > 2))
		buf_printf(report, "the header's journal mode is wrong");
	os_sys.close(fd);
}

/* --- the write-ahead log; https://sqlite.org/fileformat2.html --- */

struct wal_sum {
	uint32_t s0, s1;
	bool big_endian;
};

static void wal_sum_add(struct wal_sum *sum, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i += 8) {
		uint32_t x[2];
		memcpy(x, data + i, sizeof(x));
		sum->s0 += (sum->big_endian ? be32toh(x[0]) : le32toh(x[0])) + sum->s1;
		sum->s1 += (sum->big_endian ? be32toh(x[1]) : le32toh(x[1])) + sum->s0;
	}
}

static bool wal_sum_is(const struct wal_sum *sum, const uint8_t *stored)
{
	return get32(stored) == sum->s0 && get32(stored + 4) == sum->s1;
}

/* What a walk over the log found. */
struct wal_walk {
	uint8_t header[WAL_HEADER_BYTES];
	bool header_is_bad;
	uint64_t valid, written; /* frames: before the first bad one; up to the last of this log's salts */
};

/* Frames after `written` are left from before the log began anew: they have other salts. */
static void wal_walk(int fd, uint64_t size, struct wal_walk *ret)
{
	static const char magic[] = "\x37\x7f\x06\x82\x00\x2d\xe2\x18";
	*ret = (struct wal_walk){0};
	if (size <= WAL_HEADER_BYTES || !read_at(fd, ret->header, WAL_HEADER_BYTES, 0))
		return;
	const uint8_t *h = ret->header;
	struct wal_sum sum = {.big_endian = h[3] & 1};
	uint32_t page_bytes = get32(h + 8);
	wal_sum_add(&sum, h, 24);
	ret->header_is_bad = memcmp(h, magic, 3) != 0 || (h[3] | 1) != 0x83 ||
	                     memcmp(h + 4, magic + 4, 4) != 0 || page_bytes < 512 ||
	                     page_bytes > PAGE_BYTES_MAX || page_bytes % 8 != 0 || !wal_sum_is(&sum, h + 24);
	size_t frame_bytes = FRAME_HEADER_BYTES + page_bytes;
	uint8_t *frame = ret->header_is_bad ? NULL : malloc(frame_bytes);
	if (!frame)
		return;
	bool good = true;
	uint64_t at = WAL_HEADER_BYTES;
	for (uint64_t n = 1; at + frame_bytes <= size && read_at(fd, frame, frame_bytes, at); n++) {
		bool ours = memcmp(frame + 8, h + 16, 8) == 0;
		if (ours)
			ret->written = n;
		wal_sum_add(&sum, frame, 8);
		wal_sum_add(&sum, frame + FRAME_HEADER_BYTES, page_bytes);
		good = good && ours && wal_sum_is(&sum, frame + 16);
		if (good)
			ret->valid = n;
		at += frame_bytes;
	}
	free(frame);
}

/* The last frame may be torn: a process was killed while it wrote it, and nothing was acknowledged. While the
 * file is in use, frames are written behind the reader's back: damage is what stays at the same place. */
static void check_log(const char *path, bool is_in_use, struct buf *report)
{
	uint64_t size = 0;
	int fd = open_file(path, "-wal", &size);
	if (fd < 0)
		return;
	struct wal_walk walk, before = {0};
	bool bad;
	int looks = 0;
	do {
		struct stat st;
		if (looks++ > 0) {
			before = walk;
			size = fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
		}
		wal_walk(fd, size, &walk);
		bad = walk.header_is_bad || walk.written > walk.valid + 1;
	} while (bad && is_in_use && looks < LOOKS_MAX &&
	         (looks == 1 || memcmp(walk.header, before.header, sizeof(walk.header)) != 0 ||
	          walk.valid != before.valid));
	os_sys.close(fd);
	if (bad && walk.header_is_bad)
		buf_printf(report,
		           "the header of its log %s-wal is damaged: SQLite would ignore the whole log",
		           path);
	else if (bad)
		buf_printf(report,
		           "frame %llu of %llu in its log %s-wal is damaged: SQLite would ignore it and all "
		           "after it",
		           (unsigned long long)walk.valid + 1, (unsigned long long)walk.written, path);
}

/* --- through SQLite --- */

struct look {
	struct findings *f;
	const char *path;
};

static int goes_on(void *arg)
{
	const struct look *look = arg;
	findings_busy(look->f, look->path);
	return 0;
}

/* The rows of a statement with one column, as lines. */
static int lines_of(sqlite3 *db, const char *sql, struct buf *out)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
	if (rc != SQLITE_OK)
		return rc;
	while (sqlite3_step(stmt) == SQLITE_ROW) {
		buf_append(out, sqlite3_column_text(stmt, 0) ?: (const unsigned char *)"",
		           (size_t)sqlite3_column_bytes(stmt, 0));
		buf_char(out, '\n');
	}
	return sqlite3_finalize(stmt);
}

/* Versions of curt and of SQLite may space and quote differently. */
static const char schema_sql[] =
    "SELECT type || ' ' || name || ' ' || tbl_name || ' ' ||"
    " replace(replace(replace(coalesce(sql, ''), char(9), ''), ' ', ''), '\"', '') FROM sqlite_schema"
    " WHERE name NOT LIKE 'sqlite_stat%' ORDER BY type, name";

/* Compares with a new database after the same migrations. */
static int check_schema(const struct sqlite_conn *c, int64_t version, struct buf *report)
{
	struct buf CLEANUP(buf_release) expected = {0}, actual = {0};
	sqlite3 *fresh = NULL;
	int rc = sqlite3_open_v2(":memory:", &fresh, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
	for (int64_t i = 0; rc == SQLITE_OK && i < version; i++)
		rc = sqlite3_exec(fresh, c->layout->migrations[i], NULL, NULL, NULL);
	rc = rc ?: lines_of(fresh, schema_sql, &expected) ?: lines_of(c->db, schema_sql, &actual);
	if (rc == SQLITE_OK && !str_eq(buf_view(&expected), buf_view(&actual)))
		buf_printf(report, "its tables are not those of layout %lld", (long long)version);
	sqlite3_close(fresh);
	return rc;
}

static int check_pages(const struct sqlite_conn *c, bool is_deep, struct buf *report)
{
	struct buf CLEANUP(buf_release) lines = {0};
	int rc = lines_of(c->db, is_deep ? "PRAGMA integrity_check(5)" : "PRAGMA quick_check(5)", &lines);
	struct str rest = buf_view(&lines);
	if (str_eq(rest, STR("ok\n")))
		return rc;
	while (rest.len > 0) {
		struct str line = str_cut(&rest, '\n');
		buf_printf(report, "%s%.*s", report->len > 0 ? "; " : "", STR_ARG(line));
	}
	return rc;
}

/* *ret_foreign: the file is not one of this version's. */
static int check_content(struct sqlite_conn *c, const char *path, const struct sqlite_check *check,
                         struct buf *report, bool *ret_foreign)
{
	struct err e;
	int64_t version = 0;
	if (sqlite_conn_identify(c, path, &version, &e) < 0) {
		*ret_foreign = true;
		buf_printf(report, "%s", e.text);
		return SQLITE_OK;
	}
	int rc = check_schema(c, version, report);
	if (rc == SQLITE_OK && report->len == 0)
		rc = check_pages(c, check->is_deep, report);
	/* Rows of an older layout have other columns; the next start migrates them. */
	bool is_current = version == (int64_t)check->layout->migration_count;
	if (rc == SQLITE_OK && report->len == 0 && check->is_deep && check->verify && is_current) {
		rc = sqlite_conn_run(c, SQL_BEGIN_READ) ?: check->verify->rows(check->verify, c, report);
		sqlite_conn_run(c, SQL_ROLLBACK);
	}
	return rc;
}

/* SQLite leaves an empty log and its index behind a reader of a file that nobody uses, unless the file is
 * opened as one that cannot change. */
static char *uri_of(const char *path, bool is_immutable)
{
	struct buf uri = {0};
	buf_str(&uri, STR("file:"));
	for (const char *p = path; *p; p++)
		buf_printf(&uri, strchr("%?#", *p) ? "%%%02x" : "%c", (unsigned char)*p);
	buf_str(&uri, is_immutable ? STR("?immutable=1") : STR(""));
	buf_char(&uri, '\0');
	if (uri.failed)
		buf_release(&uri);
	return uri.data;
}

static int open_and_check(const char *path, const struct sqlite_check *check, struct findings *f,
                          struct buf *report, bool *ret_foreign)
{
	struct sqlite_conn c = {.layout = check->layout};
	struct look look = {.f = f, .path = path};
	uint64_t log_bytes = 0;
	int fd = open_file(path, "-wal", &log_bytes);
	if (fd >= 0)
		os_sys.close(fd);
	char *uri CLEANUP(freep) = uri_of(path, !check->is_in_use && log_bytes == 0);
	int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_URI;
	int rc = uri ? sqlite3_open_v2(uri, &c.db, flags, NULL) : SQLITE_NOMEM;
	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(c.db, SQLITE_BUSY_TIMEOUT_MS);
	if (rc == SQLITE_OK) {
		sqlite3_progress_handler(c.db, STEPS_PER_LOOK, goes_on, &look);
		rc = check_content(&c, path, check, report, ret_foreign);
	}
	if (rc != SQLITE_OK) {
		const char *why = c.db && sqlite3_extended_errcode(c.db) == rc ? sqlite3_errmsg(c.db)
		                                                               : sqlite3_errstr(rc);
		buf_printf(report, "%s%s", report->len > 0 ? "; " : "", why);
	}
	sqlite_conn_close(&c);
	return rc;
}

void sqlite_check(const char *path, const struct sqlite_check *check, struct findings *f)
{
	struct buf CLEANUP(buf_release) report = {0};
	findings_busy(f, path);
	check_header(path, &report);
	if (report.len == 0)
		check_log(path, check->is_in_use, &report);
	bool is_foreign = false;
	int rc = report.len == 0 ? open_and_check(path, check, f, &report, &is_foreign) : SQLITE_OK;
	int primary = rc & 0xff;
	bool is_damage = primary == SQLITE_OK || primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB ||
	                 primary == SQLITE_ERROR; /* ERROR: the schema cannot be read */
	if (report.len > 0)
		findings_add(f, VERDICT_BAD, path, "%s%.*s",
		             is_foreign  ? "BAD: "
		             : is_damage ? "DAMAGED: "
		                         : "cannot be checked: ",
		             STR_ARG(buf_view(&report)));
	else
		findings_add(f, VERDICT_OK, path, check->is_deep ? "sound" : "no damage in a quick look");
}
