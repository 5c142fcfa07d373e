/* Questions about visits, answered in one snapshot that the caller has begun. SQLite's codes; what a query
 * itself can be wrong about is checked by the functions that say so. For sink_sqlite.c only. */
#pragma once

#include "sink/layout.h"
#include "sink/page.h"

/* The query was checked (tallies.h). */
int answers_stats_get(struct sqlite_conn *c, struct stats_query *q);

/* `key` is the file's secret; where to go on is what page_check says. A rank is how many visits of that link
 * and minute were recorded before. */
int answers_visits_get(struct sqlite_conn *c, struct visits_query *q, const uint8_t *key,
                       const struct page_from *from);

int answers_top_links_get(struct sqlite_conn *c, struct top_links_query *q);
int answers_clicks_get(struct sqlite_conn *c, struct sink_total *links, size_t n);

/* Totals that the link store does not have yet. */
int answers_totals_get(struct sqlite_conn *c, size_t max, struct arena *arena, struct sink_total **ret,
                       size_t *ret_count);
int answers_books_get(struct sqlite_conn *c, bool deep, struct sink_books *ret);

/* A shape by its number, strings in the arena. */
int answers_shape_get(struct sqlite_conn *c, uint64_t id, struct arena *arena, struct visit_shape *ret);

/* Which levels may have cells where, so that nobody looks for those that cannot be. */
struct cell_spans {
	int64_t first_ms[CELL_LEVELS], last_ms[CELL_LEVELS]; /* starts; first > last: none at all */
};
int answers_spans_get(struct sqlite_conn *c, int64_t link, struct cell_spans *ret);

static inline bool answers_cell_may_be(const struct cell_spans *s, enum cell_level level, int64_t start_ms)
{
	return start_ms >= s->first_ms[level] && start_ms <= s->last_ms[level];
}
