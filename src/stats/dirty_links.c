#include "stats/dirty_links.h"

#include "base/buf.h"
#include "obs/log.h"
#include "os/file.h"
#include "os/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINE_BYTES = 17, FILE_BYTES_MAX = 1 << 28 };

struct dirty_links {
	const char *path;
	struct link_set noted;
	struct buf lines; /* not in the file yet */
	bool failed;
};

static void put_line(struct buf *to, uint64_t link)
{
	buf_printf(to, "%016llx\n", (unsigned long long)link);
}

static void failed(struct dirty_links *u, const char *why)
{
	if (!u->failed)
		log_warn("stats",
		         "cannot record dirty links, some click totals stay old after a crash: error=%s",
		         why);
	u->failed = true;
}

static void rewrite(struct dirty_links *u)
{
	struct err e;
	struct buf CLEANUP(buf_release) text = {0};
	for (size_t i = 0; i < u->noted.count; i++)
		put_line(&text, u->noted.all[i].link);
	if (text.failed)
		failed(u, "out of memory");
	else if (file_write_atomic(u->path, buf_view(&text), 0600, &e) < 0)
		failed(u, e.text);
	else
		u->failed = false;
}

bool dirty_links_are_valid(struct str text)
{
	for (size_t i = 0; i < text.len; i++) {
		bool is_hex = (text.ptr[i] >= '0' && text.ptr[i] <= '9') ||
		              (text.ptr[i] >= 'a' && text.ptr[i] <= 'f');
		if (i % LINE_BYTES == LINE_BYTES - 1 ? text.ptr[i] != '\n' : !is_hex)
			return false;
	}
	return true; /* the last line may be truncated */
}

int dirty_links_open(const char *path, struct dirty_links **ret)
{
	struct err e;
	struct buf CLEANUP(buf_release) text = {0};
	struct dirty_links *u = calloc(1, sizeof(*u));
	if (!u)
		return ERR_NOMEM;
	u->path = path;
	int r = file_read(path, FILE_BYTES_MAX, &text, &e);
	if (r < 0 && r != ERR_NOT_FOUND)
		log_warn("stats", "cannot read dirty links, some click totals may stay old: error=%s",
		         e.text);
	/* The clicks of a truncated last line are not in the sink. */
	for (size_t at = 0; r == 0 && at + LINE_BYTES <= text.len; at += LINE_BYTES) {
		unsigned long long link;
		char line[LINE_BYTES];
		memcpy(line, text.data + at, LINE_BYTES - 1);
		line[LINE_BYTES - 1] = '\0';
		if (sscanf(line, "%16llx", &link) == 1)
			link_set_add(&u->noted, link, 0);
	}
	if (r == 0 && text.len % LINE_BYTES != 0)
		rewrite(u);
	*ret = u;
	return 0;
}

void dirty_links_free(struct dirty_links *u)
{
	if (!u)
		return;
	link_set_release(&u->noted);
	buf_release(&u->lines);
	free(u);
}

const struct link_set *dirty_links_get(const struct dirty_links *u)
{
	return &u->noted;
}

void dirty_links_note(struct dirty_links *u, uint64_t link)
{
	size_t before = u->noted.count;
	if (link_set_add(&u->noted, link, 0) == 0 && u->noted.count > before)
		put_line(&u->lines, link);
}

void dirty_links_save(struct dirty_links *u)
{
	if (u->lines.len == 0)
		return;
	int fd = os_sys.open(u->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	ssize_t n = fd >= 0 && !u->lines.failed ? os_sys.write(fd, u->lines.data, u->lines.len) : -1;
	if (fd >= 0)
		os_sys.close(fd);
	bool is_whole = n == (ssize_t)u->lines.len;
	buf_release(&u->lines);
	if (!is_whole)
		rewrite(u); /* no line may follow a truncated one */
}

void dirty_links_keep(struct dirty_links *u, const struct link_set *left)
{
	if (u->noted.count == 0)
		return;
	link_set_release(&u->noted);
	for (size_t i = 0; i < left->count; i++)
		link_set_add(&u->noted, left->all[i].link, 0);
	buf_release(&u->lines);
	rewrite(u);
}
