/*
 * Event logs for tests: sample segments with records of every kind, logs whose disk syncs only when asked,
 * and what a fresh reader finds in a folder. Everything here asserts by cmocka.
 */
#pragma once

#include "event/log.h"
#include "event/reader.h"

enum { SAMPLE_RECORDS_MAX = 300, SAMPLE_BYTES_MAX = 32 * 1024, SAMPLE_RECORDS_EACH = 11 };
#define SAMPLE_SEGMENT event_segment(5, 2, 9)
#define SAMPLE_NODE    0x0123456789abcdefULL
#define SAMPLE_TIME_MS 1789000000000LL

/* The bytes of a segment, and where its records begin; at[count] is where the last one ends. */
struct event_sample {
	uint64_t segment;
	size_t count;
	size_t at[SAMPLE_RECORDS_MAX + 1];
	size_t len;
	uint8_t data[SAMPLE_BYTES_MAX];
};

/* `copies` times records of all kinds but the end, each time with other numbers; `ended` adds the end. */
void sample_make(struct event_sample *s, uint64_t segment, unsigned copies, bool ended);

/* How many records end at or before a byte. */
size_t sample_records_before(const struct event_sample *s, size_t byte);

/* What can happen to a byte. A cut leaves what is before it. */
enum damage { DAMAGE_FLIP, DAMAGE_ZERO, DAMAGE_CUT, DAMAGES };

/* Damages a copy of the sample. False: that changes nothing. */
bool sample_damage(const struct event_sample *s, enum damage what, size_t byte, struct event_sample *ret);

/* The first `records` of a sample, counted. */
struct event_counts sample_counts(const struct event_sample *s, size_t records);
void assert_counts_equal(const struct event_counts *a, const struct event_counts *b);

/* Records of the same place and content. */
void assert_events_equal(const struct event *a, const struct event *b);

/* Whole files of a folder. */
void segment_file_write(const char *folder, uint64_t segment, const void *data, size_t len);
void segment_file_read(const char *folder, uint64_t segment, struct buf *ret);
bool segment_file_is_there(const char *folder, uint64_t segment);

/* What the readers find in all segments of a folder, each up to where it stops being valid. Mentions must
 * lead to strings. */
struct event_found {
	struct event_counts counts;
	uint64_t segments, ended, strings, tallies, bytes; /* of records */
};
struct event_found folder_count(const char *folder);

/* How many files event_verify calls damaged, or its error; appends a line for each file. */
int folder_damage(const char *folder, bool growing, struct buf *report);

/* Calls back for every valid record. */
void folder_each(const char *folder, void (*seen)(void *ctx, struct event_reader *r, const struct event *ev),
                 void *ctx);

/* The flusher of such a log does nothing by itself within a test's life. */
extern const struct event_settings kit_settings;

struct event_log *kit_log_open(const char *folder, const struct event_settings *s, unsigned writers);

/* A click of link `number`, and an impression whose id is "i<number>". */
bool kit_click(struct event_writer *w, uint64_t number, int64_t now_ms);
bool kit_impression(struct event_writer *w, uint64_t number, int64_t now_ms);

/* Descriptors that this process has open. */
unsigned open_descriptors(void);

/* Nothing waits for the disk from here on: for tests that open thousands of logs. Undone by os_fault_reset,
 * or by putting os_sys_real back. */
void kit_syncs_skip(void);
