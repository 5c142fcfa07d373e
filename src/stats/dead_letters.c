#include "stats/dead_letters.h"

#include "base/json_out.h"
#include "obs/log.h"
#include "os/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { FILE_BYTES_MAX = 16 << 20, TEXT_BYTES_MAX = 4096 };

struct dead_letters {
	char *path;
	char *old_path;
};

int dead_letters_new(const char *folder, struct dead_letters **ret, struct err *e)
{
	struct dead_letters *d = calloc(1, sizeof(*d));
	if (!d)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (asprintf(&d->path, "%s/dead-letters.ndjson", folder) < 0)
		d->path = NULL;
	if (asprintf(&d->old_path, "%s/dead-letters.ndjson.1", folder) < 0)
		d->old_path = NULL;
	if (!d->path || !d->old_path) {
		dead_letters_free(d);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	*ret = d;
	return 0;
}

void dead_letters_free(struct dead_letters *d)
{
	if (!d)
		return;
	free(d->path);
	free(d->old_path);
	free(d);
}

static void put_field(struct buf *b, const char *name, struct str value)
{
	buf_printf(b, ",\"%s\":", name);
	json_out_str_or_null(b, value);
}

void dead_letters_add(struct dead_letters *d, struct event_id id, const struct event *ev, const char *reason)
{
	struct buf CLEANUP(buf_release) line = {0};
	struct stat st;
	char id_text[EVENT_ID_TEXT_BYTES];
	buf_str(&line, STR("{\"event\":"));
	json_out_str(&line, event_id_format(id.node, id.segment, id.position, id_text));
	put_field(&line, "reason", str_of(reason));
	if (ev->kind == EVENT_IMPRESSION) {
		buf_printf(&line, ",\"kind\":\"impression\",\"ts\":%lld", (long long)ev->impression.time_ms);
		put_field(&line, "id", ev->impression.id);
		put_field(&line, "userId", ev->impression.user);
		put_field(&line, "adId", ev->impression.ad);
	} else if (ev->kind == EVENT_VISIT) {
		buf_printf(&line, ",\"kind\":\"visit\",\"ts\":%lld,\"link\":%llu",
		           (long long)ev->visit.time_ms, (unsigned long long)ev->visit.link);
		put_field(&line, "key", ev->visit.key);
	} else if (ev->kind == EVENT_UNUSABLE) {
		struct str text = ev->unusable.text;
		put_field(&line, "kind", ev->unusable.is_impression ? STR("impression") : STR("visit"));
		put_field(&line, "message", str_n(text.ptr, MIN(text.len, (size_t)TEXT_BYTES_MAX)));
	}
	buf_str(&line, STR("}\n"));
	if (stat(d->path, &st) == 0 && st.st_size > FILE_BYTES_MAX)
		os_sys.rename(d->path, d->old_path);
	int fd = os_sys.open(d->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	ssize_t n = fd >= 0 && !line.failed ? os_sys.write(fd, line.data, line.len) : -1;
	if (n != (ssize_t)line.len)
		log_error("stats", "cannot write a dead letter: file=%s error=%s reason=%s", d->path,
		          strerror(errno), reason);
	if (fd >= 0)
		os_sys.close(fd);
}
