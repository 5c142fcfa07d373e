/*
 * Recovery, when a log is opened: starts a new boot, and closes the segments that earlier boots left open. A
 * torn write at the end of a segment was never acknowledged, and is truncated. Damage is reported, and the
 * segment is read up to it; docs/internals/eventlog-format.md says how the two are distinguished.
 */
#include "event/log_private.h"
#include "event/reader.h"
#include "obs/log.h"
#include "os/file.h"
#include "os/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>

/* Seconds since 2020, capped so that higher boot numbers exist. */
uint32_t event_log_boot(int64_t now_ms)
{
	int64_t s = now_ms / 1000 - 1577836800;
	return (uint32_t)MIN(MAX(s, (int64_t)0), (int64_t)INT32_MAX);
}

/* Node and boot are one line of the file `boot`. */
static struct str boot_line(uint64_t node, uint32_t boot, char out[EVENT_LINE_BYTES_MAX])
{
	int n = snprintf(out, EVENT_LINE_BYTES_MAX, "node %016llx boot %u\n", (unsigned long long)node, boot);
	return str_n(out, (size_t)n);
}

bool event_boot_parse(struct str text, uint64_t *ret_node, uint32_t *ret_boot)
{
	char line[EVENT_LINE_BYTES_MAX + 1], again[EVENT_LINE_BYTES_MAX];
	unsigned long long node;
	snprintf(line, sizeof(line), "%.*s", STR_ARG(text));
	if (sscanf(line, "node %16llx boot %u", &node, ret_boot) != 2)
		return false;
	*ret_node = node;
	return node != 0 && str_eq(boot_line(node, *ret_boot, again), text);
}

/* Starts the next boot: its number is higher than any in the folder or known to the reader. */
int log_boot_begin(struct event_log *log, const struct event_log_config *config, struct arena *arena,
                   struct log_inventory *inventory, struct err *e)
{
	char path[SEGMENT_PATH_BYTES], line[EVENT_LINE_BYTES_MAX];
	struct buf CLEANUP(buf_release) text = {0};
	uint64_t node = 0;
	uint32_t boot = 0;
	snprintf(path, sizeof(path), "%s/boot", log->path);
	int r = file_read(path, EVENT_LINE_BYTES_MAX, &text, e);
	if (r < 0 && r != ERR_NOT_FOUND)
		return r;
	if (r == 0 && !event_boot_parse(buf_view(&text), &node, &boot))
		return err_set(e, ERR_CORRUPT, "%s is damaged; remove it, and a new one is created", path);
	while (node == 0)
		randombytes_buf(&node, sizeof(node));
	log->node = node;
	r = config->resume
	        ? config->resume(config->resume_ctx, node, arena, &inventory->read, &inventory->read_count)
	        : 0;
	if (r < 0)
		return err_set(e, r, "cannot read the positions of the event log's reader (%s)", err_name(r));
	for (size_t i = 0; i < inventory->segment_count; i++)
		boot = MAX(boot, event_segment_boot(inventory->segments[i]));
	for (size_t i = 0; i < inventory->read_count; i++)
		boot = MAX(boot, event_segment_boot(inventory->read[i].stream));
	log->boot = MAX(boot + 1, config->boot_min);
	return file_write_atomic(path, boot_line(node, log->boot, line), 0600, e);
}

/* Truncates a torn write and closes the segment. */
static int seal(const struct event_log *log, struct event_scan *scan, struct err *e)
{
	char path[SEGMENT_PATH_BYTES];
	uint8_t end[EVENT_END_BYTES];
	struct event_scan whole;
	segment_path(log->path, scan->segment, path);
	/* The end record has the number of all records, also of those before the reader's position. */
	int r = event_scan(log->path, scan->segment, 0, &whole, e);
	if (r < 0 || whole.ended || whole.valid_end != scan->valid_end)
		return r;
	size_t n = event_encode_end(end, scan->segment, scan->valid_end, whole.records,
	                            EVENT_END_BY_RECOVERY);
	int fd = os_sys.open(path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0 || os_sys.ftruncate(fd, (off_t)scan->valid_end) != 0 ||
	    write_all_at(fd, end, n, scan->valid_end) < 0 || os_sys.fdatasync(fd) != 0)
		r = err_set(e, ERR_UNAVAILABLE, "cannot recover %s: %s", path, strerror(errno));
	if (fd >= 0)
		os_sys.close(fd);
	if (r == 0 && scan->size > scan->valid_end)
		log_info("event", "removed a torn write: file=%s bytes=%llu", path,
		         (unsigned long long)(scan->size - scan->valid_end));
	if (r == 0)
		scan->valid_end += n;
	return r;
}

static void report_damage(struct event_log *log, const struct event_scan *scan, const char *why)
{
	char path[SEGMENT_PATH_BYTES];
	uint64_t valid_end = scan->header_valid ? scan->valid_end : 0;
	segment_path(log->path, scan->segment, path);
	log->damaged_bytes += scan->size - valid_end;
	if (!why)
		why = !scan->header_valid ? "its header is not valid"
		      : scan->fault != EVENT_VALID
		          ? event_fault_text(scan->fault)
		          : "it has no end record, and the log continues in another segment";
	log_error("event",
	          "damaged segment, reading it up to the damage; run 'curt verify': file=%s at=%llu error=%s",
	          path, (unsigned long long)valid_end, why);
}

int log_segment_recover(struct event_log *log, const struct log_inventory *inventory, size_t which,
                        struct err *e)
{
	uint64_t segment = inventory->segments[which];
	/* Its writer has begun another segment, so this one was complete. */
	bool has_next = event_segment_has_next(inventory->segments, inventory->segment_count, which);
	char path[SEGMENT_PATH_BYTES];
	struct stat st;
	struct event_scan scan;
	uint64_t from = 0;
	for (size_t i = 0; i < inventory->read_count; i++)
		if (inventory->read[i].stream == segment)
			from = inventory->read[i].offset;
	segment_path(log->path, segment, path);
	int r = event_scan(log->path, segment, from, &scan, e);
	bool unreadable = r == ERR_UNAVAILABLE; /* a bad sector does not prevent the start */
	if (r < 0 && !unreadable)
		return r;
	/* A process that stopped while it created a segment leaves a part of the header, and no record. */
	if (!unreadable && scan.size <= EVENT_HEADER_BYTES && !has_next) {
		os_sys.unlink(path);
		return 0;
	}
	bool damaged = unreadable || !scan.header_valid || event_scan_is_damage(&scan) ||
	               (has_next && !scan.ended);
	r = 0;
	if (damaged)
		report_damage(log, &scan, unreadable ? e->text : NULL);
	else if (!scan.ended && from <= scan.size)
		r = seal(log, &scan, e);
	if (r < 0 || stat(path, &st) != 0)
		return r;
	event_counts_add(&log->backlog, &scan.counts);
	uint64_t start = MAX(from, (uint64_t)EVENT_HEADER_BYTES);
	if (scan.valid_end > start)
		atomic_fetch_add(&log->spool_used, scan.valid_end - start);
	struct log_segment *s = log_segment_add(log, segment, -1, scan.header_valid ? scan.valid_end : 0,
	                                        true, (int64_t)st.st_mtim.tv_sec * 1000);
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->damaged = damaged;
	return 0;
}
