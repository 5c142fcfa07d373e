/* A batch on its way into the file. For sink_sqlite.c only; SQLite's codes. */
#pragma once

#include "base/buf.h"
#include "sink/keyed.h"
#include "sink/layout.h"
#include "sink/seen.h"

struct intake {
	struct sqlite_conn *c;
	const uint8_t *key; /* the file's secret, SINK_KEY_BYTES */
	struct seen *seen;
	const struct sink_batch *batch;

	uint64_t duplicates; /* out */

	struct book book;    /* as it will be */
	uint32_t *shapes;    /* numbers in the file */
	bool *clicks;        /* whether the shape is one */
	uint64_t shape_last; /* the largest number in the file */
	int64_t *texts;      /* numbers in the file; 0: not looked up yet; -1: not kept */
	struct seen_entry *entries;
	struct buf scratch;
};

/* Everything of the batch, in the transaction that the caller has begun. The seen set must be told how that
 * ended before the intake is released. */
int intake_run(struct intake *in);
void intake_release(struct intake *in);
