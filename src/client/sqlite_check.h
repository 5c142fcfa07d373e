/*
 * Looks for damage in a SQLite file. Changes nothing, and may run beside the process that uses the file.
 *
 * SQLite has checksums in its write-ahead log only. Elsewhere damage shows when it breaks a rule:
 *
 *	header      its fixed fields, our application id, a layout that this version knows
 *	schema      exactly what the layout's migrations create
 *	pages       SQLite's integrity_check: structure, order, types, and every index against its table.
 *	            The quick look leaves the indexes out.
 *	log         checksums of all frames. SQLite ignores everything from a bad frame on without a word.
 *	rows        what the owner of the file knows about them (`verify`)
 *
 * A changed character in a text that has no index cannot be seen, nor can one in unused space.
 */
#pragma once

#include "base/findings.h"
#include "client/sqlite.h"

/* What the owner knows. Appends a sentence for the first bad row, or nothing; returns SQLite's code. */
struct sqlite_verify {
	int (*rows)(struct sqlite_verify *, struct sqlite_conn *c, struct buf *report);
};

struct sqlite_check {
	const struct sqlite_layout *layout;
	struct sqlite_verify *verify; /* NULL: none */
	bool is_deep;                 /* otherwise the quick look */
	bool is_in_use;               /* by another process */
};

/* Adds one finding, under the path. */
void sqlite_check(const char *path, const struct sqlite_check *check, struct findings *f);
