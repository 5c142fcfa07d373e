/* The folder, the list of segments, and the flusher. */
#include "event/log_private.h"

#include "event/reader.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const durability_names[] = {"flush", "sync", NULL};
static const char *const address_names[] = {"truncated", "none", NULL};

#define FIELD(f) offsetof(struct event_settings, f)

const struct conf_row event_rows[] = {
    {"events", "visits", CONF_BOOL, FIELD(visits), .def = "true",
     .help = "Whether visits are recorded. Without them, clicks are not counted."},
    {"events", "durability", CONF_ENUM, FIELD(durability), .def = "flush", .choices = durability_names,
     .help = "What an answer to /event promises. flush: the event survives a killed process; power loss "
             "costs at most events.flush_ms. sync: it also survives power loss, and the answer waits for the "
             "disk. Redirects never wait, except those of links with max_clicks."},
    {"events", "flush_ms", CONF_UINT, FIELD(flush_ms), "1000", 10, 60000,
     .help = "How often the event log is flushed to the disk, in milliseconds."},
    {"events", "spool_bytes", CONF_BYTES, FIELD(spool_bytes), "1g", 1 << 20, 1ULL << 44,
     .help = "The most bytes of events that wait to be analysed. Beyond that, /event answers 503 and clicks "
             "are counted as dropped."},
    {"events", "segment_bytes", CONF_BYTES, FIELD(segment_bytes), "64m", 64 << 10, 1 << 30,
     .help = "The size at which the event log begins a new segment."},
    {"events", "keep_time", CONF_DURATION, FIELD(keep_ms), "1h", 0, 0,
     .help = "How long analysed segments of the event log are kept."},
    {"events", "keep_bytes", CONF_BYTES, FIELD(keep_bytes), "256m", 0, 0,
     .help = "The most bytes of analysed segments that are kept; the oldest are removed first."},
    {"events", "address", CONF_ENUM, FIELD(address), .def = "truncated", .choices = address_names,
     .help =
         "What is kept of a visitor's address. truncated: its network (IPv4 /24, IPv6 /48). none: nothing."},
    {"events", "country_header", CONF_STRING, FIELD(country_header), .def = "CF-IPCountry",
     .help = "The request header in which a trusted proxy gives the visitor's country as two letters. Empty: "
             "none."},
};
const size_t event_row_count = ARRAY_LEN(event_rows);

void segment_path(const char *folder, uint64_t segment, char out[SEGMENT_PATH_BYTES])
{
	snprintf(out, SEGMENT_PATH_BYTES, "%s/%08x-%02x-%06x.log", folder, (unsigned)(segment >> 32),
	         (unsigned)(segment >> 24 & 0xff), (unsigned)(segment & 0xffffff));
}

bool event_segment_parse(const char *name, uint64_t *ret)
{
	unsigned boot, writer, sequence;
	int used = 0;
	if (sscanf(name, "%8x-%2x-%6x.log%n", &boot, &writer, &sequence, &used) != 3)
		return false;
	char again[SEGMENT_PATH_BYTES];
	*ret = event_segment(boot, writer, sequence);
	segment_path(".", *ret, again);
	return strcmp(again + 2, name) == 0;
}

bool event_segment_has_next(const uint64_t *segments, size_t count, size_t i)
{
	return i + 1 < count && segments[i + 1] >> 24 == segments[i] >> 24;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

int event_folder_list(const char *folder, struct arena *arena, uint64_t **ret, size_t *ret_count,
                      struct err *e)
{
	DIR *dir = opendir(folder);
	if (!dir)
		return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE,
		               "cannot read the folder %s: %s", folder, strerror(errno));
	struct buf CLEANUP(buf_release) found = {0};
	struct dirent *entry;
	errno = 0;
	while ((entry = readdir(dir))) {
		uint64_t segment;
		if (event_segment_parse(entry->d_name, &segment))
			buf_append(&found, &segment, sizeof(segment));
	}
	int failed = errno; /* an incomplete list is worse than none */
	closedir(dir);
	if (failed)
		return err_set(e, ERR_UNAVAILABLE, "cannot read the folder %s: %s", folder, strerror(failed));
	*ret = arena_alloc(arena, found.len + 1);
	if (found.failed || !*ret)
		return err_set(e, ERR_NOMEM, "out of memory");
	memcpy(*ret, found.data ? found.data : "", found.len);
	*ret_count = found.len / sizeof(uint64_t);
	qsort(*ret, *ret_count, sizeof(uint64_t), by_number);
	return 0;
}

/* Segments */

struct log_segment *log_segment_add(struct event_log *log, uint64_t number, int fd, uint64_t end,
                                    bool finished, int64_t modified_ms)
{
	struct log_segment *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->number = number;
	s->fd = fd;
	s->modified_ms = modified_ms;
	atomic_init(&s->end, end);
	atomic_init(&s->finished, finished);
	pthread_mutex_lock(&log->lock);
	list_push(&log->segments, &s->link);
	log->folder_dirty |= fd >= 0;
	pthread_mutex_unlock(&log->lock);
	return s;
}

int log_segment_begin(struct event_log *log, uint64_t number, int64_t now_ms, struct log_segment **ret)
{
	char path[SEGMENT_PATH_BYTES];
	uint8_t head[EVENT_HEADER_BYTES];
	event_header_encode(&(struct event_header){log->node, number, now_ms}, head);
	segment_path(log->path, number, path);
	/* Not O_EXCL: a failed attempt leaves its file, and no other process uses the number. */
	int fd = os_sys.open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int r = write_all_at(fd, head, sizeof(head), 0);
	if (r == 0 && !(*ret = log_segment_add(log, number, fd, EVENT_HEADER_BYTES, false, now_ms)))
		r = -ENOMEM;
	if (r < 0)
		os_sys.close(fd);
	return r;
}

int event_log_segments(struct event_log *log, struct arena *arena, struct event_segment_state **ret,
                       size_t *ret_count)
{
	size_t count = 0;
	pthread_mutex_lock(&log->lock);
	for (struct list *l = log->segments.next; l != &log->segments; l = l->next)
		count++;
	struct event_segment_state *states = arena_alloc(arena, count * sizeof(*states) + 1);
	if (states) {
		count = 0;
		for (struct list *l = log->segments.next; l != &log->segments; l = l->next) {
			const struct log_segment *s = container_of(l, struct log_segment, link);
			/* Read `finished` first: if it is set, `end` is final. */
			bool finished = atomic_load_explicit(&s->finished, memory_order_acquire);
			states[count++] = (struct event_segment_state){
			    .segment = s->number,
			    .end = atomic_load_explicit(&s->end, memory_order_acquire),
			    .finished = finished,
			    .modified_ms = finished ? s->modified_ms : 0,
			};
		}
	}
	pthread_mutex_unlock(&log->lock);
	if (!states)
		return ERR_NOMEM;
	qsort(states, count, sizeof(*states), by_number); /* the number is the first field */
	*ret = states;
	*ret_count = count;
	return 0;
}

int event_log_remove(struct event_log *log, uint64_t segment)
{
	char path[SEGMENT_PATH_BYTES];
	struct log_segment *found = NULL;
	int r = ERR_NOT_FOUND;
	pthread_mutex_lock(&log->lock);
	for (struct list *l = log->segments.next; l != &log->segments && !found; l = l->next) {
		struct log_segment *s = container_of(l, struct log_segment, link);
		if (s->number == segment)
			found = s;
	}
	if (found) {
		bool done = found->fd < 0 && atomic_load_explicit(&found->finished, memory_order_acquire);
		r = !done ? ERR_BUSY : found->damaged ? ERR_CORRUPT : 0;
	}
	pthread_mutex_unlock(&log->lock);
	if (r < 0)
		return r;
	/* Its position may be forgotten only once its removal is durable: otherwise it would be read again. */
	segment_path(log->path, segment, path);
	if ((os_sys.unlink(path) != 0 && errno != ENOENT) || os_sys.fsync(log->folder_fd) != 0) {
		log_warn("event", "cannot remove a segment: file=%s error=%s", path, strerror(errno));
		return ERR_UNAVAILABLE;
	}
	pthread_mutex_lock(&log->lock);
	list_remove(&found->link);
	pthread_mutex_unlock(&log->lock);
	free(found);
	return 0;
}

/* The flusher */

static void note_sync_failure(struct event_log *log, int error)
{
	if (atomic_exchange(&log->sync_failed, true))
		return;
	log_error(
	    "event",
	    "cannot sync the event log, /event answers 503 until the disk is repaired and curt restarted:"
	    " error=%s",
	    strerror(error));
}

static struct log_segment *next_to_sync(struct event_log *log, uint64_t *ret_end, bool *ret_finished)
{
	for (struct list *l = log->segments.next; l != &log->segments; l = l->next) {
		struct log_segment *s = container_of(l, struct log_segment, link);
		if (s->fd < 0 || s->round == log->round)
			continue;
		s->round = log->round;
		*ret_finished = atomic_load_explicit(&s->finished, memory_order_acquire);
		*ret_end = atomic_load_explicit(&s->end, memory_order_acquire);
		if (*ret_end > s->synced || *ret_finished)
			return s;
	}
	return NULL;
}

/* Syncs each segment once: a busy one grows again meanwhile, and writers wait for the end of the round. Only
 * this closes descriptors, and a segment with an open one is never removed, so it can be used without the
 * lock. */
static void sync_segments(struct event_log *log)
{
	struct log_segment *s;
	uint64_t end;
	bool finished;
	log->round++;
	while ((s = next_to_sync(log, &end, &finished))) {
		int fd = s->fd;
		pthread_mutex_unlock(&log->lock);
		bool failed_before = atomic_load_explicit(&log->sync_failed, memory_order_relaxed);
		if (end > s->synced && !failed_before && os_sys.fdatasync(fd) != 0)
			note_sync_failure(log, errno);
		if (finished)
			os_sys.close(fd);
		pthread_mutex_lock(&log->lock);
		s->synced = end;
		if (finished)
			s->fd = -1;
	}
}

static void sync_folder(struct event_log *log)
{
	if (!log->folder_dirty || atomic_load_explicit(&log->sync_failed, memory_order_relaxed))
		return;
	log->folder_dirty = false;
	pthread_mutex_unlock(&log->lock);
	if (os_sys.fsync(log->folder_fd) != 0)
		note_sync_failure(log, errno);
	pthread_mutex_lock(&log->lock);
}

static void flush_round(struct event_log *log)
{
	uint64_t written[EVENT_WRITERS_MAX] = {0};
	for (unsigned i = 0; i < log->writer_count; i++)
		written[i] = atomic_load_explicit(&log->writers[i].written, memory_order_acquire);
	pthread_mutex_lock(&log->lock);
	sync_folder(log);
	sync_segments(log);
	pthread_mutex_unlock(&log->lock);
	bool failed = atomic_load_explicit(&log->sync_failed, memory_order_relaxed);
	for (unsigned i = 0; i < log->writer_count; i++) {
		struct event_writer *w = &log->writers[i];
		bool moved = written[i] > atomic_load_explicit(&w->synced, memory_order_relaxed);
		if (moved && !failed)
			atomic_store_explicit(&w->synced, written[i], memory_order_release);
		if (moved && log->synced)
			log->synced(log->ctx, i);
	}
}

static int64_t flusher_run(struct task *t)
{
	struct event_log *log = container_of(t, struct event_log, flusher);
	flush_round(log);
	return (int64_t)log->settings->flush_ms;
}

/* Opening */

static int log_begin(struct event_log *log, const struct event_log_config *config, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct log_inventory found = {0};
	int r = dir_create(log->path, 0700, e);
	/* Kept open, so that a lack of descriptors is not taken for a failure of the disk. */
	if (r == 0 && (log->folder_fd = os_sys.open(log->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)) < 0)
		r = err_set(e, ERR_UNAVAILABLE, "cannot open the folder %s: %s", log->path, strerror(errno));
	if (r == 0)
		r = event_folder_list(log->path, &arena, &found.segments, &found.segment_count, e);
	if (r == 0)
		r = log_boot_begin(log, config, &arena, &found, e);
	for (size_t i = 0; r == 0 && i < found.segment_count; i++)
		r = log_segment_recover(log, &found, i, e);
	for (unsigned i = 0; r == 0 && i < config->writers; i++) {
		r = writer_init(&log->writers[i], log, i);
		log->writer_count = i + 1;
		if (r < 0)
			err_set(e, r, "out of memory for the event log");
	}
	const struct task_config flusher = {
	    .name = "flusher", .run = flusher_run, .first_ms = (int64_t)log->settings->flush_ms};
	return r < 0 ? r : task_start(&log->flusher, &flusher, e);
}

int event_log_open(const struct event_log_config *config, struct event_log **ret, struct err *e)
{
	ASSERT(config->writers <= EVENT_WRITERS_MAX);
	struct event_log *log = calloc(1, sizeof(*log) + config->writers * sizeof(log->writers[0]));
	if (!log)
		return err_set(e, ERR_NOMEM, "out of memory for the event log");
	log->folder_fd = -1;
	log->settings = config->settings;
	log->synced = config->synced;
	log->ctx = config->ctx;
	list_init(&log->segments);
	pthread_mutex_init(&log->lock, NULL);
	log->path = strdup(config->path);
	int r = log->path ? log_begin(log, config, e)
	                  : err_set(e, ERR_NOMEM, "out of memory for the event log");
	if (r < 0) {
		event_log_close(log);
		return r;
	}
	*ret = log;
	return 0;
}

void event_log_close(struct event_log *log)
{
	if (!log)
		return;
	if (task_was_started(&log->flusher)) {
		for (unsigned i = 0; i < log->writer_count; i++)
			writer_end(&log->writers[i], clock_real_ms());
		task_stop(&log->flusher);
		flush_round(log); /* the end records written above */
	}
	for (unsigned i = 0; i < log->writer_count; i++)
		writer_release(&log->writers[i]);
	struct list *node;
	while ((node = list_pop(&log->segments))) {
		struct log_segment *s = container_of(node, struct log_segment, link);
		if (s->fd >= 0)
			os_sys.close(s->fd);
		free(s);
	}
	if (log->folder_fd >= 0)
		os_sys.close(log->folder_fd);
	pthread_mutex_destroy(&log->lock);
	free(log->path);
	free(log);
}

/* Accessors */

struct event_writer *event_log_writer(struct event_log *log, unsigned number)
{
	ASSERT(number < log->writer_count);
	return &log->writers[number];
}

uint64_t event_log_node(const struct event_log *log)
{
	return log->node;
}

const char *event_log_path(const struct event_log *log)
{
	return log->path;
}

struct event_counts event_log_backlog(const struct event_log *log)
{
	return log->backlog;
}

uint64_t event_log_damaged_bytes(const struct event_log *log)
{
	return log->damaged_bytes;
}

uint64_t event_log_spool_bytes(const struct event_log *log)
{
	return atomic_load_explicit(&log->spool_used, memory_order_relaxed);
}

bool event_log_is_full(const struct event_log *log)
{
	return event_log_spool_bytes(log) >= log->settings->spool_bytes;
}

bool event_log_sync_failed(const struct event_log *log)
{
	return atomic_load_explicit(&log->sync_failed, memory_order_relaxed);
}

void event_log_consumed(struct event_log *log, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&log->spool_used, bytes, memory_order_relaxed);
}

int event_log_trouble(struct event_log *log, struct err *e)
{
	if (event_log_sync_failed(log))
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the event log could not be synced; see the server's log, repair the disk, and "
		    "restart");
	for (unsigned i = 0; i < log->writer_count; i++)
		if (atomic_load_explicit(&log->writers[i].failing, memory_order_relaxed))
			return err_set(
			    e, ERR_UNAVAILABLE,
			    "the event log cannot be written; see the server's log, and free disk space");
	if (event_log_is_full(log))
		return err_set(
		    e, ERR_LIMIT,
		    "the event log is full (events.spool_bytes), clicks are dropped; check the stats worker");
	return 0;
}
