/*
 * The links that the link store has not heard of since they were clicked, in a file: for a worker that reads
 * its own log into a sink which does not know them, and may be killed. A link is in the file before its
 * clicks are in the sink, and stays until the store was told. Not flushed to the disk: after a power loss the
 * last of them may be missing, and a link's `clicks` are old until it is clicked again.
 *
 * Owned by the stats worker's thread.
 */
#pragma once

#include "stats/link_set.h"

struct dirty_links;

/* Reads what is there. `path` outlives it. A file that cannot be read is said to be, and empty. ERR_NOMEM. */
int dirty_links_open(const char *path, struct dirty_links **ret);
void dirty_links_free(struct dirty_links *u);

/* All that are noted. */
const struct link_set *dirty_links_get(const struct dirty_links *u);

/* Notes a link; it is in the file after the next `save`. */
void dirty_links_note(struct dirty_links *u, uint64_t link);
void dirty_links_save(struct dirty_links *u);

/* The store was told of all but these. */
void dirty_links_keep(struct dirty_links *u, const struct link_set *left);
