/* Reads and checks segments. A reader belongs to one thread. */
#pragma once

#include "base/buf.h"
#include "base/findings.h"
#include "event/log.h"

struct event_reader {
	int fd;
	uint64_t segment;
	uint64_t node;
	uint64_t position;      /* of the next record */
	enum event_fault fault; /* after ERR_CORRUPT: what is wrong at `position` */
	uint8_t *buffer;
	uint64_t buffer_at;
	size_t buffer_len;
};

/* Starts at `position`, or at the first record if that is 0. ERR_NOT_FOUND; ERR_CORRUPT: invalid header;
 * ERR_UNAVAILABLE: the file cannot be read. */
int event_reader_open(struct event_reader *r, const char *folder, uint64_t segment, uint64_t position,
                      struct err *e);
void event_reader_close(struct event_reader *r); /* also zero-initialised, and twice */

/*
 * 1: *ret is the next record, its strings valid until the next call. 0: `end` is reached. ERR_CORRUPT: the
 * record at r->position is invalid; the position stays. ERR_UNAVAILABLE: the file could not be read.
 */
int event_reader_next(struct event_reader *r, uint64_t end, struct event *ret);

/* The string record at a position, copied to `out`; STR_NULL: none. */
struct str event_reader_string(const struct event_reader *r, uint32_t at, char out[EVENT_STRING_BYTES_MAX]);

/* Counts an event; `by` is 1, or -1 to undo it. */
void event_counts_count(struct event_counts *n, const struct event *ev, uint64_t by);

/* Adds the counts that records have: clicks, orphans, impressions, rejected and dropped. */
void event_counts_add(struct event_counts *to, const struct event_counts *more);

/* The result of reading a whole segment. */
struct event_scan {
	uint64_t segment;
	uint64_t size;
	bool header_valid;
	uint64_t node;      /* of the header */
	uint64_t valid_end; /* records are valid up to here */
	bool ended;         /* by an end record */
	uint8_t end_flags;
	uint64_t records;
	struct event_counts counts;
	enum event_fault fault;  /* at valid_end, when that is not the size */
	uint64_t valid_again_at; /* a valid record further on: so it is damage, not a torn write; 0: none */
	bool count_is_wrong;     /* the end record has another number of records */
};

/* Not a torn write: valid records follow the bad one, or more bytes are left than one write has. */
bool event_scan_is_damage(const struct event_scan *s);

/* Reads the segment from `from` (0: its first record). */
int event_scan(const char *folder, uint64_t segment, uint64_t from, struct event_scan *ret, struct err *e);

/* The same for its header alone: sets `size` and `header_valid`. */
int event_scan_header(const char *folder, uint64_t segment, struct event_scan *ret, struct err *e);

/* The segments in a folder, by number. ERR_NOT_FOUND: no such folder. */
int event_folder_list(const char *folder, struct arena *arena, uint64_t **ret, size_t *ret_count,
                      struct err *e);

bool event_segment_parse(const char *file_name, uint64_t *ret); /* false: not a segment's name */

/* Has the writer of segments[i] begun another one in the same boot? */
bool event_segment_has_next(const uint64_t *segments, size_t count, size_t i);

/*
 * Checks every segment, and the small files beside them. `growing`: a server is running, so segments of the
 * highest boot may end in the middle of a write. Without `is_deep`, only headers are read, and only bad ones are
 * reported. ERR_NOT_FOUND: no such folder.
 */
int event_verify(const char *folder, bool is_deep, bool growing, struct findings *f, struct err *e);
