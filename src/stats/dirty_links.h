/*
 * Links that were clicked since their totals were flushed to the link store, in a file. For a worker that
 * reads its own log into a sink that does not track them, and may be killed. A link is in the file before its
 * clicks are in the sink, until it is flushed. The file is not synced: after power loss the last links may be
 * missing, and their `clicks` in the store stay old until the next click.
 *
 * Owned by the stats worker's thread.
 */
#pragma once

#include "base/str.h"
#include "stats/link_set.h"

struct dirty_links;

/* Reads the file; `path` outlives it. An unreadable file is logged and treated as empty. ERR_NOMEM. */
int dirty_links_open(const char *path, struct dirty_links **ret);
void dirty_links_free(struct dirty_links *u);

const struct link_set *dirty_links_get(const struct dirty_links *u);

/* Adds a link; the next `save` writes it to the file. */
void dirty_links_note(struct dirty_links *u, uint64_t link);
void dirty_links_save(struct dirty_links *u);

/* All but these were flushed. */
void dirty_links_keep(struct dirty_links *u, const struct link_set *left);

bool dirty_links_are_valid(struct str text); /* of the file */
