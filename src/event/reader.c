#include "event/reader.h"

#include "event/log_private.h"
#include "os/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { READ_BYTES = 256 * 1024 };
_Static_assert(READ_BYTES > UINT16_MAX, "a record fits the buffer");

static ssize_t read_at(int fd, void *to, size_t len, uint64_t at)
{
	size_t done = 0;
	while (done < len) {
		ssize_t n = os_sys.pread(fd, (char *)to + done, len - done, (off_t)(at + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int event_reader_open(struct event_reader *r, const char *folder, uint64_t segment, uint64_t position,
                      struct err *e)
{
	char path[SEGMENT_PATH_BYTES];
	uint8_t head[EVENT_HEADER_BYTES];
	struct event_header header = {0};
	segment_path(folder, segment, path);
	*r = (struct event_reader){.segment = segment,
	                           .position = MAX(position, (uint64_t)EVENT_HEADER_BYTES)};
	r->fd = os_sys.open(path, O_RDONLY | O_CLOEXEC, 0);
	if (r->fd < 0)
		return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, "cannot open %s: %s",
		               path, strerror(errno));
	ssize_t n = read_at(r->fd, head, sizeof(head), 0);
	int result = 0;
	if (n < 0)
		result = err_set(e, ERR_UNAVAILABLE, "cannot read %s: %s", path, strerror(errno));
	else if (n < (ssize_t)sizeof(head) || !event_header_decode(head, &header) ||
	         header.segment != segment)
		result = err_set(e, ERR_CORRUPT, "%s has no valid header", path);
	else
		r->buffer = malloc(READ_BYTES);
	if (result == 0 && !r->buffer)
		result = err_set(e, ERR_NOMEM, "out of memory");
	if (result < 0) {
		event_reader_close(r);
		return result;
	}
	r->node = header.node;
	return 0;
}

void event_reader_close(struct event_reader *r)
{
	if (r->segment != 0 && r->fd >= 0)
		os_sys.close(r->fd);
	free(r->buffer);
	*r = (struct event_reader){.fd = -1};
}

int event_reader_next(struct event_reader *r, uint64_t end, struct event *ret)
{
	if (r->position >= end)
		return 0;
	for (int tries = 0;; tries++) {
		uint64_t skip = r->position - r->buffer_at;
		size_t at_hand = skip < r->buffer_len ? r->buffer_len - (size_t)skip : 0;
		size_t usable = (size_t)MIN((uint64_t)at_hand, end - r->position);
		enum event_fault fault = usable > 0 ? event_decode(r->buffer + skip, usable, r->segment,
		                                                   r->position, ret)
		                                    : EVENT_CUT;
		if (LIKELY(fault == EVENT_VALID)) {
			r->position += ret->length;
			return 1;
		}
		if (fault != EVENT_CUT || tries > 0) {
			r->fault = fault;
			return ERR_CORRUPT;
		}
		/* Not after `end`: bytes of a failed write there will be overwritten. */
		size_t wanted = (size_t)MIN((uint64_t)READ_BYTES, end - r->position);
		ssize_t n = read_at(r->fd, r->buffer, wanted, r->position);
		if (n < 0)
			return ERR_UNAVAILABLE;
		r->buffer_at = r->position;
		r->buffer_len = (size_t)n;
	}
}

struct str event_reader_string(const struct event_reader *r, uint32_t at, char out[EVENT_STRING_BYTES_MAX])
{
	uint8_t record[8 + EVENT_STRING_BYTES_MAX];
	struct event found;
	if (at < EVENT_HEADER_BYTES)
		return STR_NULL;
	ssize_t n = read_at(r->fd, record, sizeof(record), at);
	if (n <= 0 || event_decode(record, (size_t)n, r->segment, at, &found) != EVENT_VALID ||
	    found.kind != EVENT_STRING)
		return STR_NULL;
	memcpy(out, found.string.ptr, found.string.len);
	return str_n(out, found.string.len);
}

/* Scanning */

void event_counts_count(struct event_counts *n, const struct event *ev, uint64_t by)
{
	switch (ev->kind) {
	case EVENT_VISIT: *(event_is_orphan(ev->visit.kind) ? &n->orphans : &n->clicks) += by; break;
	case EVENT_IMPRESSION: n->impressions += by; break;
	case EVENT_TALLY:
		n->rejected += by * ev->tally.rejected;
		n->dropped += by * ev->tally.dropped;
		break;
	case EVENT_STRING:
	case EVENT_END:
	case EVENT_UNUSABLE: break;
	}
}

void event_counts_add(struct event_counts *to, const struct event_counts *more)
{
	to->clicks += more->clicks;
	to->orphans += more->orphans;
	to->impressions += more->impressions;
	to->rejected += more->rejected;
	to->dropped += more->dropped;
}

/* Is the reader's position right after the end record? Only at the end of the file: elsewhere, the bytes
 * before it may be a text that looks like an end record. */
static bool ended_before(const struct event_reader *r, uint64_t size, uint8_t *ret_flags)
{
	uint8_t record[EVENT_END_BYTES];
	struct event ev;
	if (r->position != size || size < EVENT_HEADER_BYTES + EVENT_END_BYTES)
		return false;
	uint64_t at = r->position - EVENT_END_BYTES;
	if (read_at(r->fd, record, sizeof(record), at) != sizeof(record) ||
	    event_decode(record, sizeof(record), r->segment, at, &ev) != EVENT_VALID || ev.kind != EVENT_END)
		return false;
	*ret_flags = ev.flags;
	return true;
}

/* A torn write leaves a part of one turn, so a valid record after the bad one means damage. The checksum
 * covers the position, so a valid record is no coincidence. */
static int find_valid_again(struct event_reader *r, struct event_scan *s)
{
	struct event ev;
	size_t window = EVENT_TURN_BYTES + EVENT_RECORD_BYTES_MAX;
	for (uint64_t at = s->valid_end + 1; at < s->size;) {
		uint8_t *chunk = malloc(window);
		if (!chunk)
			return ERR_NOMEM;
		/* Not beyond the size at the start: the file may have grown since. */
		ssize_t n = read_at(r->fd, chunk, (size_t)MIN((uint64_t)window, s->size - at), at);
		size_t step = n > EVENT_RECORD_BYTES_MAX ? (size_t)n - EVENT_RECORD_BYTES_MAX
		                                         : (size_t)MAX(n, 0);
		for (size_t i = 0; i < step && s->valid_again_at == 0; i++)
			if (event_decode(chunk + i, (size_t)n - i, s->segment, at + i, &ev) == EVENT_VALID)
				s->valid_again_at = at + i;
		free(chunk);
		if (n < 0)
			return ERR_UNAVAILABLE;
		if (s->valid_again_at != 0 || step == 0)
			break;
		at += step;
	}
	return 0;
}

bool event_scan_is_damage(const struct event_scan *s)
{
	return s->valid_again_at != 0 || s->size - s->valid_end > EVENT_TURN_BYTES;
}

/* Opens the segment for a scan. A bad header is not an error: the reader stays closed. */
static int scan_open(const char *folder, uint64_t segment, uint64_t from, struct event_reader *r,
                     struct event_scan *ret, struct err *e)
{
	struct stat st;
	char path[SEGMENT_PATH_BYTES];
	*ret = (struct event_scan){.segment = segment};
	segment_path(folder, segment, path);
	if (stat(path, &st) != 0)
		return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, "cannot look at %s: %s",
		               path, strerror(errno));
	ret->size = (uint64_t)st.st_size;
	int got = event_reader_open(r, folder, segment, from, e);
	ret->header_valid = got == 0;
	ret->node = r->node;
	return got == ERR_CORRUPT ? 0 : got;
}

int event_scan_header(const char *folder, uint64_t segment, struct event_scan *ret, struct err *e)
{
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	return scan_open(folder, segment, 0, &r, ret, e);
}

int event_scan(const char *folder, uint64_t segment, uint64_t from, struct event_scan *ret, struct err *e)
{
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	struct event ev;
	char path[SEGMENT_PATH_BYTES];
	segment_path(folder, segment, path);
	int got = scan_open(folder, segment, from, &r, ret, e);
	if (got < 0 || !ret->header_valid)
		return got;
	ret->ended = ended_before(&r, ret->size, &ret->end_flags);
	while (!ret->ended && (got = event_reader_next(&r, ret->size, &ev)) == 1) {
		event_counts_count(&ret->counts, &ev, 1);
		ret->ended = ev.kind == EVENT_END;
		if (ret->ended) {
			ret->end_flags = ev.flags;
			ret->count_is_wrong = from <= EVENT_HEADER_BYTES &&
			                      ev.records_before_end != ret->records;
		} else {
			ret->records++;
		}
	}
	ret->valid_end = MIN(r.position, ret->size);
	if (got == ERR_CORRUPT) {
		ret->fault = r.fault;
		got = find_valid_again(&r, ret);
	}
	return got < 0 ? err_set(e, got, "cannot read %s: %s", path, strerror(errno)) : 0;
}
