#include "lib/sink_model.h"

#include "lib/test.h"
#include "stats/dedup.h"

static const int64_t second_ms = 1000, minute_ms = 60000, hour_ms = 3600000, day_ms = 86400000;

uint64_t model_random(struct model *m, uint64_t below)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return (m->random >> 11) % below;
}

static struct str pick_of(struct model *m, const char *const *choices, size_t count)
{
	return str_of(choices[model_random(m, count)]);
}

void model_init(struct model *m, uint64_t seed, int64_t window_ms)
{
	static const char *const referrers[] = {NULL, "", "example.com", "news.example"};
	static const char *const countries[] = {NULL, "DE", "FR"};
	static const char *const browsers[] = {"Firefox", "Chrome"};
	static const char *const bots[] = {NULL, NULL, "crawler"};
	static const char *const texts[MODEL_TEXTS] = {"a",
	                                               "agent/1.0",
	                                               "https://example.com/",
	                                               "Hesse\nKassel",
	                                               "\n",
	                                               "/wp-login",
	                                               "one\ntwo\nthree",
	                                               "",
	                                               "x y",
	                                               "Berlin",
	                                               "Bavaria\n",
	                                               "\xc3\xa9"};
	*m = (struct model){.random = seed * 2654435761u + 88172645463325252u, .window_ms = window_ms};
	for (unsigned i = 0; i < MODEL_SHAPES; i++) {
		struct dimension_set *s = &m->sets[i];
		s->kind = i < 16 ? VISIT_CLICK : i < 24 ? (enum visit_kind)(i % 4 + 1) : VISIT_CLICK;
		s->dims[DIM_REFERRER] = pick_of(m, referrers, ARRAY_LEN(referrers));
		s->dims[DIM_COUNTRY] = pick_of(m, countries, ARRAY_LEN(countries));
		s->dims[DIM_BROWSER] = pick_of(m, browsers, ARRAY_LEN(browsers));
		s->dims[DIM_SOURCE] = i % 2 ? STR("qr") : STR("link");
		s->dims[DIM_BOT] = pick_of(m, bots, ARRAY_LEN(bots));
	}
	for (unsigned i = 0; i < MODEL_TEXTS; i++)
		m->texts[i] = str_of(texts[i]);
	for (unsigned i = 0; i < MODEL_ADS; i++)
		snprintf(m->ads[i], sizeof(m->ads[i]), "ad-%u", (i * 7) % MODEL_ADS);
}

void model_release(struct model *m)
{
	free(m->visits);
	free(m->impressions);
	*m = (struct model){0};
}

/* --- making batches --- */

static uint64_t link_of(unsigned i)
{
	return i == 0 ? 1 : i == 1 ? INT64_MAX : i * 1000 + 5;
}

/* Often right at an edge. */
static int64_t random_time(struct model *m, int64_t from_ms, int64_t to_ms)
{
	static const int64_t units[] = {1, 1000, 60000, 3600000, 86400000};
	int64_t ms = from_ms + (int64_t)model_random(m, (uint64_t)(to_ms - from_ms));
	int64_t unit = units[model_random(m, ARRAY_LEN(units))];
	int64_t at = ms / unit * unit + (int64_t)model_random(m, 3) - 1;
	return at >= from_ms && at < to_ms ? at : ms;
}

static uint32_t random_text(struct model *m)
{
	return model_random(m, 3) == 0 ? SINK_NO_TEXT : (uint32_t)model_random(m, MODEL_TEXTS);
}

static struct sink_visit random_visit(struct model *m, int64_t from_ms, int64_t to_ms)
{
	uint32_t set = (uint32_t)model_random(m, MODEL_SHAPES);
	struct sink_visit v = {.time_ms = random_time(m, from_ms, to_ms),
	                       .set = set,
	                       .visitor = model_random(m, 40),
	                       .agent = random_text(m),
	                       .referrer = random_text(m),
	                       .place = random_text(m),
	                       .path = random_text(m),
	                       .address_len = (uint8_t)(model_random(m, 3) * 3)};
	for (unsigned i = 0; i < v.address_len; i++)
		v.address[i] = (uint8_t)model_random(m, 256);
	if (!visit_is_orphan(m->sets[set].kind))
		v.link = link_of((unsigned)model_random(m, MODEL_LINKS));
	return v;
}

static void fingerprint_of(uint64_t number, uint8_t out[SINK_FINGERPRINT_BYTES])
{
	uint64_t spread = number * 0x9e3779b97f4a7c15u;
	memset(out, 0, SINK_FINGERPRINT_BYTES);
	memcpy(out, &spread, 8);
	memcpy(out + 8, &number, 4);
}

static bool is_seen(const struct model *m, const struct sink_impression *i)
{
	for (size_t k = 0; k < m->impression_count; k++) {
		int64_t apart = m->impressions[k].received_ms - i->received_ms;
		if (memcmp(m->impressions[k].fingerprint, i->fingerprint, SINK_FINGERPRINT_BYTES) == 0 &&
		    apart < m->window_ms && -apart < m->window_ms)
			return true;
	}
	return false;
}

static void *room(void *items, size_t count, size_t *cap, size_t item_bytes)
{
	if (count < *cap)
		return items;
	*cap = *cap ? *cap * 2 : 256;
	void *larger = realloc(items, *cap * item_bytes);
	assert_non_null(larger);
	return larger;
}

static bool model_take(struct model *m, const struct sink_impression *i, unsigned ad)
{
	if (is_seen(m, i))
		return false;
	m->impressions = room(m->impressions, m->impression_count, &m->impression_cap,
	                      sizeof(*m->impressions));
	struct model_impression *kept = &m->impressions[m->impression_count++];
	*kept = (struct model_impression){.time_ms = i->time_ms, .received_ms = i->received_ms, .ad = ad};
	memcpy(kept->fingerprint, i->fingerprint, SINK_FINGERPRINT_BYTES);
	return true;
}

static bool is_in_batch(const struct sink_impression *impressions, size_t count, const uint8_t *fingerprint)
{
	for (size_t i = 0; i < count; i++)
		if (memcmp(impressions[i].fingerprint, fingerprint, SINK_FINGERPRINT_BYTES) == 0)
			return true;
	return false;
}

static void random_impressions(struct model *m, struct sink_impression *out, unsigned *ads, size_t count,
                               int64_t from_ms, int64_t to_ms, int64_t now_ms)
{
	for (size_t i = 0; i < count; i++) {
		ads[i] = (unsigned)model_random(m, MODEL_ADS);
		out[i] = (struct sink_impression){.event = {1, 1, ++m->events},
		                                  .time_ms = random_time(m, from_ms, to_ms),
		                                  .received_ms = now_ms + (int64_t)model_random(m, 1000),
		                                  .id = STR("id"),
		                                  .user = STR("user"),
		                                  .ad = str_of(m->ads[ads[i]])};
		do
			fingerprint_of(model_random(m, 1000), out[i].fingerprint);
		while (is_in_batch(out, i, out[i].fingerprint));
	}
}

struct made {
	struct sink_visit *visits;
	struct sink_impression *impressions;
	unsigned *ads;
	struct sink_note notes[2];
	struct advance advance;
	struct sink_batch batch;
};

static struct event_id next_event(struct model *m)
{
	return (struct event_id){.node = 1, .segment = 1, .position = ++m->events};
}

/* As the stats worker does it. *ret_duplicates are all that were not counted, whichever side found them. */
static int give(struct sink *s, const struct sink_batch *batch, uint64_t *ret_duplicates)
{
	struct dedup *d = NULL;
	struct sink_batch b = *batch;
	assert_int_equal(dedup_new(s, NULL, &d), 0);
	int r = dedup_filter(d, &b, NULL, 0);
	if (r == 0)
		r = s->ops->commit(s, &b, ret_duplicates);
	*ret_duplicates += batch->impression_count - b.impression_count;
	dedup_free(d);
	return r;
}

static void make(struct model *m, struct made *b, size_t visits, size_t impressions, int64_t from_ms,
                 int64_t to_ms, int64_t now_ms)
{
	b->visits = calloc(visits + 1, sizeof(*b->visits));
	b->impressions = calloc(impressions + 1, sizeof(*b->impressions));
	b->ads = calloc(impressions + 1, sizeof(*b->ads));
	for (size_t i = 0; i < visits; i++) {
		b->visits[i] = random_visit(m, from_ms, to_ms);
		b->visits[i].event = next_event(m);
	}
	random_impressions(m, b->impressions, b->ads, impressions, from_ms, to_ms, now_ms);
	b->advance = (struct advance){UINT64_MAX - 5, m->committed, m->visit_count + visits};
	m->committed = b->advance.to;
	b->batch = (struct sink_batch){.visits = b->visits,
	                               .visit_count = visits,
	                               .impressions = b->impressions,
	                               .impression_count = impressions,
	                               .sets = m->sets,
	                               .set_count = MODEL_SHAPES,
	                               .texts = m->texts,
	                               .text_count = MODEL_TEXTS,
	                               .advances = &b->advance,
	                               .advance_count = 1,
	                               .now_ms = now_ms};
	b->notes[0] = (struct sink_note){next_event(m), NOTE_DUPLICATE, now_ms, 1};
	b->notes[1] = (struct sink_note){next_event(m), NOTE_REJECTED, now_ms, 2};
	b->batch.notes = b->notes;
	b->batch.note_count = ARRAY_LEN(b->notes);
	b->batch.tally = (struct sink_tally){.impressions = impressions + 1, .duplicates = 1, .rejected = 2};
	for (size_t i = 0; i < visits; i++)
		*(b->visits[i].link ? &b->batch.tally.clicks : &b->batch.tally.orphans) += 1;
}

static void made_release(struct made *b)
{
	free(b->visits);
	free(b->impressions);
	free(b->ads);
}

static uint64_t model_apply(struct model *m, const struct made *b)
{
	uint64_t duplicates = 0;
	for (size_t i = 0; i < b->batch.visit_count; i++) {
		m->visits = room(m->visits, m->visit_count, &m->visit_cap, sizeof(*m->visits));
		m->visits[m->visit_count++] = (struct model_visit){.v = b->visits[i],
		                                                   .set = b->visits[i].set};
	}
	for (size_t i = 0; i < b->batch.impression_count; i++)
		duplicates += !model_take(m, &b->impressions[i], b->ads[i]);
	m->tally.clicks += b->batch.tally.clicks;
	m->tally.orphans += b->batch.tally.orphans;
	m->tally.impressions += b->batch.tally.impressions;
	m->tally.duplicates += b->batch.tally.duplicates;
	m->tally.rejected += b->batch.tally.rejected;
	m->duplicates += duplicates;
	return duplicates;
}

void model_commit(struct model *m, struct sink *s, size_t visits, size_t impressions, int64_t from_ms,
                  int64_t to_ms, int64_t now_ms)
{
	struct made b;
	uint64_t duplicates = 0;
	make(m, &b, visits, impressions, from_ms, to_ms, now_ms);
	assert_int_equal(give(s, &b.batch, &duplicates), 0);
	assert_int_equal(duplicates, model_apply(m, &b));
	made_release(&b);
}

void model_commit_again(struct model *m, struct sink *s, size_t visits, size_t impressions, int64_t from_ms,
                        int64_t to_ms, int64_t now_ms, void (*failed)(int r))
{
	struct made b;
	uint64_t duplicates = 0;
	make(m, &b, visits, impressions, from_ms, to_ms, now_ms);
	int r = give(s, &b.batch, &duplicates);
	if (r != 0) {
		failed(r);
		assert_int_equal(give(s, &b.batch, &duplicates), 0);
	}
	assert_int_equal(duplicates, model_apply(m, &b));
	made_release(&b);
}

bool model_impress(struct model *m, struct sink *s, uint64_t fingerprint, int64_t received_ms)
{
	struct sink_impression i = {.event = next_event(m),
	                            .time_ms = received_ms,
	                            .received_ms = received_ms,
	                            .id = STR("i"),
	                            .user = STR("u"),
	                            .ad = str_of(m->ads[0])};
	fingerprint_of(fingerprint, i.fingerprint);
	struct sink_batch batch = {.impressions = &i, .impression_count = 1, .now_ms = received_ms};
	batch.tally.impressions = 1;
	uint64_t duplicates = 0;
	assert_int_equal(give(s, &batch, &duplicates), 0);
	bool counts = model_take(m, &i, 0);
	m->tally.impressions++;
	m->duplicates += !counts;
	assert_int_equal(duplicates, !counts);
	return duplicates == 0;
}

/* --- statistics --- */

static bool same(struct str a, struct str b)
{
	return (a.ptr == NULL) == (b.ptr == NULL) && str_eq(a, b);
}

static bool wants(const struct model *m, const struct stats_query *q, const struct model_visit *v)
{
	const struct dimension_set *set = &m->sets[v->set];
	bool bot = set->dims[DIM_BOT].ptr != NULL;
	if (v->v.time_ms < q->from_ms || v->v.time_ms >= q->to_ms || (q->link && v->v.link != q->link))
		return false;
	if ((q->bots == BOTS_EXCLUDED && bot) || (q->bots == BOTS_ONLY && !bot))
		return false;
	for (int i = 0; i < DIM_COUNT; i++)
		if (q->filtered >> i & 1 && !same(q->filter[i], set->dims[i]))
			return false;
	return true;
}

/* The end of the step that begins at `ms`. */
static int64_t step_after(enum stats_step step, int64_t ms)
{
	switch (step) {
	case STEP_MINUTE: return ms + minute_ms;
	case STEP_HOUR: return ms + hour_ms;
	case STEP_DAY: return ms + day_ms;
	case STEP_WEEK: return ms + 7 * day_ms;
	case STEP_MONTH: break;
	}
	time_t t = (time_t)(ms / second_ms);
	struct tm tm;
	gmtime_r(&t, &tm);
	tm.tm_mon++;
	return (int64_t)timegm(&tm) * second_ms;
}

static int64_t step_begin(enum stats_step step, int64_t ms)
{
	time_t t = (time_t)(ms / second_ms);
	struct tm tm;
	gmtime_r(&t, &tm);
	tm.tm_sec = 0;
	if (step >= STEP_HOUR)
		tm.tm_min = 0;
	if (step >= STEP_DAY)
		tm.tm_hour = 0;
	if (step == STEP_WEEK)
		tm.tm_mday -= (tm.tm_wday + 6) % 7;
	if (step == STEP_MONTH)
		tm.tm_mday = 1;
	return (int64_t)timegm(&tm) * second_ms;
}

static void check_series(const struct model *m, const struct stats_query *q)
{
	size_t i = 0;
	for (int64_t at = step_begin(q->step, q->from_ms); q->from_ms < q->to_ms && at < q->to_ms;
	     at = step_after(q->step, at), i++) {
		uint64_t clicks = 0;
		int64_t end = step_after(q->step, at);
		for (size_t k = 0; k < m->visit_count; k++) {
			const struct model_visit *v = &m->visits[k];
			clicks += m->sets[v->set].kind == VISIT_CLICK && v->v.time_ms >= at &&
			          v->v.time_ms < end && wants(m, q, v);
		}
		assert_true(i < q->series_count);
		assert_int_equal(q->series[i].time_ms, at);
		assert_int_equal(q->series[i].clicks, clicks);
	}
	assert_int_equal(q->series_count, i);
}

static uint64_t share_of(const struct model *m, const struct stats_query *q, int dim, struct str value)
{
	uint64_t clicks = 0;
	for (size_t k = 0; k < m->visit_count; k++) {
		const struct dimension_set *set = &m->sets[m->visits[k].set];
		clicks += set->kind == VISIT_CLICK && same(set->dims[dim], value) &&
		          wants(m, q, &m->visits[k]);
	}
	return clicks;
}

static void check_shares(const struct model *m, const struct stats_query *q, int dim)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < q->share_count[dim]; i++) {
		const struct stats_share *share = &q->shares[dim][i];
		assert_true(share->clicks > 0);
		assert_int_equal(share->clicks, share_of(m, q, dim, share->value));
		sum += share->clicks;
		if (i > 0)
			assert_true(
			    share[-1].clicks > share->clicks ||
			    (share[-1].clicks == share->clicks && !same(share[-1].value, share->value)));
	}
	if (q->share_count[dim] < q->shares_max)
		assert_int_equal(sum, q->clicks);
	else
		assert_true(sum <= q->clicks);
}

static uint64_t count_visitors(const struct model *m, const struct stats_query *q)
{
	uint64_t sum = 0;
	int64_t first = q->from_ms / day_ms, last = (q->to_ms - 1) / day_ms;
	for (int64_t day = first; q->from_ms < q->to_ms && day <= last; day++) {
		bool seen[64] = {false};
		for (size_t k = 0; k < m->visit_count; k++) {
			const struct model_visit *v = &m->visits[k];
			if ((q->link && v->v.link != q->link) || v->v.time_ms / day_ms != day ||
			    v->v.visitor == 0 || m->sets[v->set].kind != VISIT_CLICK || seen[v->v.visitor] ||
			    (q->bots != BOTS_INCLUDED &&
			     (q->bots == BOTS_ONLY) != (m->sets[v->set].dims[DIM_BOT].ptr != NULL)))
				continue;
			seen[v->v.visitor] = true;
			sum++;
		}
	}
	return sum;
}

void model_check_stats(struct model *m, struct sink *s, const struct stats_query *query)
{
	struct arena arena = {0};
	struct stats_query q = *query;
	uint64_t kinds[VISIT_KINDS] = {0}, bots = 0;
	q.arena = &arena;
	assert_int_equal(s->ops->stats(s, &q), 0);
	for (size_t k = 0; k < m->visit_count; k++) {
		const struct dimension_set *set = &m->sets[m->visits[k].set];
		if (!wants(m, &q, &m->visits[k]))
			continue;
		kinds[set->kind]++;
		bots += set->kind == VISIT_CLICK && set->dims[DIM_BOT].ptr;
	}
	assert_int_equal(q.clicks, kinds[VISIT_CLICK]);
	assert_int_equal(q.bot_clicks, bots);
	assert_int_equal(q.heads, kinds[VISIT_HEAD]);
	assert_int_equal(q.prefetches, kinds[VISIT_PREFETCH]);
	assert_int_equal(q.unknowns, kinds[VISIT_UNKNOWN]);
	assert_int_equal(q.roots, kinds[VISIT_ROOT]);
	assert_int_equal(q.has_visitors, !q.filtered);
	if (q.has_visitors)
		assert_int_equal(q.visitors, count_visitors(m, &q));
	if (q.series_wanted)
		check_series(m, &q);
	for (int dim = 0; dim < DIM_COUNT; dim++) {
		if (q.dims_wanted >> dim & 1)
			check_shares(m, &q, dim);
		else
			assert_int_equal(q.share_count[dim], 0);
	}
	arena_release(&arena);
}

/* --- the others --- */

void model_check_window(struct model *m, struct sink *s, int64_t from_ms, int64_t to_ms)
{
	struct arena arena = {0};
	struct window_query q = {.from_ms = from_ms, .to_ms = to_ms, .arena = &arena};
	uint64_t counts[MODEL_ADS] = {0};
	assert_int_equal(s->ops->window(s, &q), 0);
	for (size_t i = 0; i < m->impression_count; i++)
		if (m->impressions[i].time_ms > from_ms && m->impressions[i].time_ms <= to_ms)
			counts[m->impressions[i].ad]++;
	size_t at = 0;
	for (unsigned name = 0; name < MODEL_ADS; name++) { /* "ad-0", "ad-1", ...: sorted */
		char text[16];
		snprintf(text, sizeof(text), "ad-%u", name);
		for (unsigned ad = 0; ad < MODEL_ADS; ad++) {
			if (strcmp(m->ads[ad], text) != 0 || counts[ad] == 0)
				continue;
			assert_true(at < q.count);
			assert_true(str_eq(q.ads[at].ad, str_of(text)));
			assert_int_equal(q.ads[at++].count, counts[ad]);
		}
	}
	assert_int_equal(q.count, at);
	arena_release(&arena);
}

static int newest_first(const void *a, const void *b)
{
	const struct model_visit *const *x = a, *const *y = b;
	int64_t m = (*x)->v.time_ms / minute_ms, n = (*y)->v.time_ms / minute_ms;
	if (m != n)
		return m > n ? -1 : 1;
	return *x > *y ? -1 : *x < *y; /* they lie in the order of recording */
}

static struct str text_at(const struct model *m, uint32_t index)
{
	return index == SINK_NO_TEXT ? STR_NULL : m->texts[index];
}

static void assert_visit(const struct model *m, const struct stats_visit *v, const struct model_visit *e)
{
	assert_int_equal(v->time_ms, e->v.time_ms);
	assert_int_equal(v->link, e->v.link);
	assert_int_equal(v->set.kind, m->sets[e->set].kind);
	for (int i = 0; i < DIM_COUNT; i++)
		assert_true(same(v->set.dims[i], m->sets[e->set].dims[i]));
	assert_true(same(v->agent, text_at(m, e->v.agent)));
	assert_true(same(v->referrer, text_at(m, e->v.referrer)));
	assert_true(same(v->path, text_at(m, e->v.path)));
	struct str place = text_at(m, e->v.place);
	assert_true(same(v->region, place.ptr ? str_cut(&place, '\n') : STR_NULL));
	assert_true(same(v->city, place));
	char address[32] = "";
	const uint8_t *a = e->v.address;
	if (e->v.address_len == 3)
		snprintf(address, sizeof(address), "%u.%u.%u.0/24", a[0], a[1], a[2]);
	assert_int_equal(v->address.ptr != NULL, e->v.address_len > 0);
	if (e->v.address_len == 3)
		assert_true(str_eq(v->address, str_of(address)));
	else if (e->v.address_len == 6)
		assert_true(str_ends(v->address, STR("::/48")));
}

void model_check_visits(struct model *m, struct sink *s, uint64_t link, int64_t from_ms, int64_t to_ms,
                        size_t limit)
{
	struct arena arena = {0};
	const struct model_visit **expected = malloc((m->visit_count + 1) * sizeof(struct model_visit *));
	size_t count = 0, at = 0;
	for (size_t i = 0; i < m->visit_count; i++) {
		const struct sink_visit *v = &m->visits[i].v;
		if (v->link == link && v->time_ms >= from_ms && v->time_ms < to_ms)
			expected[count++] = &m->visits[i];
	}
	qsort(expected, count, sizeof(struct model_visit *), newest_first);
	struct str cursor = STR_NULL;
	do {
		struct visits_query q = {.link = link,
		                         .from_ms = from_ms,
		                         .to_ms = to_ms,
		                         .cursor = cursor,
		                         .limit = limit,
		                         .arena = &arena};
		assert_int_equal(s->ops->visits(s, &q), 0);
		assert_true(q.count <= limit && at + q.count <= count);
		for (size_t i = 0; i < q.count; i++)
			assert_visit(m, &q.visits[i], expected[at++]);
		assert_int_equal(q.next.ptr != NULL, at < count);
		cursor = q.next;
	} while (cursor.ptr);
	assert_int_equal(at, count);
	free(expected);
	arena_release(&arena);
}

static uint64_t clicks_of(const struct model *m, uint64_t link, int64_t from_ms, int64_t to_ms)
{
	uint64_t clicks = 0;
	for (size_t i = 0; i < m->visit_count; i++) {
		const struct model_visit *v = &m->visits[i];
		clicks += v->v.link == link && v->v.time_ms >= from_ms && v->v.time_ms < to_ms &&
		          m->sets[v->set].kind == VISIT_CLICK;
	}
	return clicks;
}

void model_check_top_links(struct model *m, struct sink *s, int64_t from_ms, int64_t to_ms, size_t limit)
{
	struct arena arena = {0};
	struct top_links_query q = {.from_ms = from_ms, .to_ms = to_ms, .limit = limit, .arena = &arena};
	int64_t first = from_ms / day_ms * day_ms, last = (to_ms + day_ms - 1) / day_ms * day_ms;
	size_t with_clicks = 0;
	assert_int_equal(s->ops->top_links(s, &q), 0);
	for (unsigned i = 0; from_ms < to_ms && i < MODEL_LINKS; i++)
		with_clicks += clicks_of(m, link_of(i), first, last) > 0;
	assert_int_equal(q.count, MIN(limit, with_clicks));
	for (size_t i = 0; i < q.count; i++) {
		assert_int_equal(q.links[i].clicks, clicks_of(m, q.links[i].link, first, last));
		if (i > 0)
			assert_true(q.links[i - 1].clicks >= q.links[i].clicks &&
			            q.links[i - 1].link != q.links[i].link);
	}
	for (unsigned i = 0; i < MODEL_LINKS && q.count > 0; i++) { /* nobody larger was left out */
		bool given = false;
		for (size_t k = 0; k < q.count; k++)
			given |= q.links[k].link == link_of(i);
		assert_true(given || clicks_of(m, link_of(i), first, last) <= q.links[q.count - 1].clicks);
	}
	arena_release(&arena);
}

/* One by one, and all together with a link that nobody visited, one twice, and one that cannot be. */
void model_check_clicks(struct model *m, struct sink *s)
{
	struct sink_total all[MODEL_LINKS + 3] = {0};
	for (unsigned i = 0; i < MODEL_LINKS; i++) {
		struct sink_total one = {.link = link_of(i), .clicks = 99};
		assert_int_equal(s->ops->clicks(s, &one, 1), 0);
		assert_int_equal(one.link, link_of(i));
		assert_int_equal(one.clicks, clicks_of(m, one.link, INT64_MIN, INT64_MAX));
		all[MODEL_LINKS - i].link = link_of(i);
	}
	all[0] = (struct sink_total){.link = 2, .clicks = 99};
	all[MODEL_LINKS + 1].link = link_of(0);
	all[MODEL_LINKS + 2].clicks = 99;
	assert_int_equal(s->ops->clicks(s, all, ARRAY_LEN(all)), 0);
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		assert_int_equal(all[i].clicks,
		                 all[i].link ? clicks_of(m, all[i].link, INT64_MIN, INT64_MAX) : 0);
	assert_int_equal(all[0].clicks, 0);
}

/* Asks for those that changed until there are none. */
void model_check_totals(struct model *m, struct sink *s)
{
	struct arena arena = {0};
	struct sink_total *totals;
	size_t count;
	do {
		assert_int_equal(s->ops->totals(s, 3, &arena, &totals, &count), 0);
		assert_true(count <= 3);
		for (size_t i = 0; i < count; i++)
			assert_int_equal(totals[i].clicks,
			                 clicks_of(m, totals[i].link, INT64_MIN, INT64_MAX));
		assert_int_equal(s->ops->totals_flushed(s, totals, count), 0);
	} while (count > 0);
	arena_release(&arena);
}

void model_check_books(struct model *m, struct sink *s, bool rows_kept)
{
	for (int deep = 0; deep < 2; deep++) {
		struct reconciliation b;
		assert_int_equal(s->ops->reconciliation(s, 0, deep, &b), 0);
		assert_int_equal(b.tally.clicks, m->tally.clicks);
		assert_int_equal(b.tally.orphans, m->tally.orphans);
		assert_int_equal(b.tally.impressions, m->tally.impressions);
		assert_int_equal(b.tally.rejected, m->tally.rejected);
		assert_int_equal(b.clicks_in_rollups, m->tally.clicks);
		assert_int_equal(b.orphans_in_rollups, m->tally.orphans);
		assert_int_equal(b.impressions_counted, m->impression_count);
		assert_int_equal(b.duplicates, m->duplicates + m->tally.duplicates);
		assert_int_equal(b.impressions_counted + b.duplicates, m->tally.impressions);
		if (deep && rows_kept) {
			assert_int_equal(b.visit_rows, m->visit_count);
			assert_int_equal(b.impression_rows, m->impression_count);
		}
	}
}

static struct stats_query random_stats(struct model *m, int64_t from_ms, int64_t to_ms,
                                       enum stats_step finest)
{
	struct stats_query q = {
	    .link = model_random(m, 4) == 0 ? 0 : link_of((unsigned)model_random(m, MODEL_LINKS)),
	    .from_ms = random_time(m, from_ms, to_ms),
	    .to_ms = random_time(m, from_ms, to_ms) + 1,
	    .step = (enum stats_step)(finest + model_random(m, STEP_MONTH - finest + 1)),
	    .series_wanted = model_random(m, 2),
	    .dims_wanted = (unsigned)model_random(m, 1 << DIM_COUNT),
	    .shares_max = 1 + model_random(m, 6),
	    .bots = (enum stats_bots)model_random(m, 3)};
	if (q.from_ms > q.to_ms) {
		int64_t swap = q.from_ms;
		q.from_ms = q.to_ms;
		q.to_ms = swap;
	}
	if (model_random(m, 3) == 0) {
		q.from_ms = from_ms;
		q.to_ms = to_ms;
	}
	if ((q.to_ms - q.from_ms) / minute_ms > SINK_SERIES_MAX / 2 && q.step == STEP_MINUTE)
		q.step = STEP_HOUR;
	if (model_random(m, 2)) {
		int dim = (int)model_random(m, DIM_COUNT);
		q.filtered = 1U << dim | 1U << DIM_SOURCE;
		const struct dimension_set *like = &m->sets[model_random(m, MODEL_SHAPES)];
		q.filter[dim] = like->dims[dim];
		q.filter[DIM_SOURCE] = like->dims[DIM_SOURCE];
	}
	return q;
}

void model_check_all(struct model *m, struct sink *s, int64_t from_ms, int64_t to_ms, enum stats_step finest,
                     unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		struct stats_query q = random_stats(m, from_ms, to_ms, finest);
		model_check_stats(m, s, &q);
		model_check_window(m, s, random_time(m, from_ms, to_ms), random_time(m, from_ms, to_ms));
		model_check_window(m, s, q.from_ms, q.to_ms);
		model_check_visits(m, s, q.link, q.from_ms, q.to_ms,
		                   MAX(m->page_min, 1) + model_random(m, 40));
		model_check_top_links(m, s, q.from_ms, q.to_ms, 1 + model_random(m, 10));
	}
	model_check_clicks(m, s);
}
