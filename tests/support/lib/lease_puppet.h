/*
 * Other processes that hold leases and do what a test tells them, one line at a time, so that they can be
 * paused and killed. They run the same program: a fork of a process with threads is no process to rely on.
 */
#pragma once

#include "lib/lease_suite.h"

#include <stdio.h>

struct puppet {
	pid_t pid;
	FILE *to, *from;
};

void puppet_start(struct puppet *p, const struct lease_backend *backend);
void puppet_stop(struct puppet *p); /* as it is: -9 */

/* One line there and one back, for sscanf: the answer in `out`. */
enum { PUPPET_LINE_BYTES = 512 };
void puppet_tell(struct puppet *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
const char *puppet_hear(struct puppet *p, char out[PUPPET_LINE_BYTES]);

/*
 * What guards something: keeps the largest fencing number in a file, and refuses smaller ones. Says whether
 * the write went through.
 */
bool guarded_write(const char *path, uint64_t fence);

/* What a puppet understands:
 *   take NAME LIFE_MS           taken FENCE, busy, or unavailable
 *   held                        yes, or no
 *   write PATH                  done, or refused: a guarded write with the fencing number of its lease,
 * unasked release                     released contend NAME ROUNDS FOLDER  done: takes and releases the lease
 * so often; see contend() */

/* Takes the lease, notes in the folder that it is inside and how large its fencing number is, and releases
 * it; `rounds` times. False: somebody else was inside as well, or the numbers did not grow. */
bool contend(struct leases *l, struct str name, int rounds, const char *folder);
