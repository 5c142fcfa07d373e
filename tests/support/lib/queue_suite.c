#include "lib/queue_suite.h"

#include "lib/event_kit.h"
#include "lib/test.h"

enum { WRITERS = 3, IDS = 7, KIND_AT = 3 * 17 /* in a line */ };

struct queue_bed queue_bed;

/* Keepers */

void keeper_release(struct queue_keeper *k)
{
	free(k->positions);
	*k = (struct queue_keeper){0};
}

static struct position *keeper_find(struct queue_keeper *k, uint64_t stream)
{
	for (size_t i = 0; i < k->count; i++) {
		if (k->positions[i].stream == stream)
			return &k->positions[i];
	}
	if (k->count == k->cap) {
		k->cap = MAX(2 * k->cap, (size_t)16);
		k->positions = reallocarray(k->positions, k->cap, sizeof(*k->positions));
		assert_non_null(k->positions);
	}
	k->positions[k->count] = (struct position){stream, 0};
	return &k->positions[k->count++];
}

void keeper_take(struct queue_keeper *k, const struct advance *advances, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct position *p = keeper_find(k, advances[i].stream);
		if (p->offset != advances[i].from)
			fail_msg("stream %llx is at %llu, and a step begins at %llu",
			         (unsigned long long)p->stream, (unsigned long long)p->offset,
			         (unsigned long long)advances[i].from);
		assert_true(advances[i].to != advances[i].from);
		p->offset = advances[i].to;
	}
}

/* What is known of an event, as a line */

struct lines {
	char **all;
	size_t count, cap;
};

static void lines_release(struct lines *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->all[i]);
	free(l->all);
	*l = (struct lines){0};
}

static void put_bytes(struct buf *out, struct str s)
{
	buf_char(out, '|');
	for (size_t i = 0; i < s.len; i++)
		buf_printf(out, "%02x", (unsigned char)s.ptr[i]);
}

static void lines_add(struct lines *l, struct event_id id, const struct event *ev, const struct str texts[3])
{
	struct buf line = {0};
	buf_printf(&line, "%016llx %016llx %016llx %d", (unsigned long long)id.node,
	           (unsigned long long)id.segment, (unsigned long long)id.position, ev->kind);
	if (ev->kind == EVENT_VISIT) {
		const struct event_visit *v = &ev->visit;
		buf_printf(&line, " %lld %llu %llx %d %d %.2s", (long long)v->time_ms,
		           (unsigned long long)v->link, (unsigned long long)v->visitor, v->kind, v->source,
		           v->country);
		put_bytes(&line, str_n((const char *)v->address, v->address_len));
		put_bytes(&line, v->key);
		for (int i = 0; i < 3; i++)
			put_bytes(&line, texts[i]);
	} else if (ev->kind == EVENT_IMPRESSION) {
		const struct event_impression *i = &ev->impression;
		buf_printf(&line, " %lld %lld", (long long)i->time_ms, (long long)i->received_ms);
		put_bytes(&line, i->id);
		put_bytes(&line, i->user);
		put_bytes(&line, i->ad);
	} else if (ev->kind == EVENT_TALLY) {
		buf_printf(&line, " %lld %llu %llu", (long long)ev->tally.time_ms,
		           (unsigned long long)ev->tally.rejected, (unsigned long long)ev->tally.dropped);
	} else {
		buf_release(&line);
		return; /* the log's own */
	}
	buf_char(&line, '\0');
	assert_false(line.failed);
	if (l->count == l->cap) {
		l->cap = MAX(2 * l->cap, (size_t)64);
		l->all = reallocarray(l->all, l->cap, sizeof(*l->all));
		assert_non_null(l->all);
	}
	l->all[l->count++] = line.data;
}

static int line_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void assert_lines_equal(struct lines *a, struct lines *b)
{
	qsort(a->all, a->count, sizeof(*a->all), line_order);
	qsort(b->all, b->count, sizeof(*b->all), line_order);
	for (size_t i = 0; i < MIN(a->count, b->count); i++)
		assert_string_equal(a->all[i], b->all[i]);
	assert_int_equal(a->count, b->count);
}

static void logged_add(void *ctx, struct event_reader *r, const struct event *ev)
{
	char out[3][EVENT_STRING_BYTES_MAX];
	struct str texts[3] = {STR_NULL, STR_NULL, STR_NULL};
	const uint32_t at[3] = {ev->visit.agent, ev->visit.referrer, ev->visit.language};
	for (int i = 0; ev->kind == EVENT_VISIT && i < 3; i++)
		texts[i] = at[i] ? event_reader_string(r, at[i], out[i]) : STR_NULL;
	lines_add(ctx, (struct event_id){r->node, r->segment, ev->position}, ev, texts);
}

/* What is in the log. */
static void logged(struct lines *ret)
{
	folder_each(queue_bed.folder, logged_add, ret);
}

static void given_add(struct lines *l, struct queue *q, const struct queue_event *ev)
{
	char out[3][EVENT_STRING_BYTES_MAX];
	struct str texts[3] = {ev->agent, ev->referrer, ev->language};
	const uint32_t at[3] = {ev->event->visit.agent, ev->event->visit.referrer, ev->event->visit.language};
	for (int i = 0; !ev->has_texts && ev->event->kind == EVENT_VISIT && i < 3; i++)
		texts[i] = at[i] ? q->ops->text(q, ev->stream, at[i], out[i]) : STR_NULL;
	lines_add(l, ev->id, ev->event, texts);
}

/* Writing */

static unsigned written;

static void write_visit(struct event_writer *w, unsigned n)
{
	static const struct str agents[] = {STR("Mozilla/5.0 (X11; \"Linux\")"), STR("caf\xe9 \\ 1.0"),
	                                    STR("curl/7"), STR_NULL};
	static const struct str referrers[] = {STR("https://news.example/?a=b&c=\xc3\xa9"), STR_NULL,
	                                       STR("\x01\x7f\xf0\x9f\x98\x80")};
	char key[32];
	snprintf(key, sizeof(key), "key%u", n % IDS);
	struct event_visit v = {
	    .time_ms = SAMPLE_TIME_MS + n,
	    .link = 1 + n % IDS,
	    .visitor = n % 3 ? 0xfedcba9876543210ULL - n : 0,
	    .kind = n % EVENT_VISIT_KINDS,
	    .source = n / 5 % EVENT_SOURCES,
	    .country = {n % 2 ? 'A' : 0, n % 2 ? 'T' : 0},
	    .address_len = n % 3 == 0   ? 0
	                   : n % 3 == 1 ? 3
	                                : 6,
	    .address = {192, (uint8_t)n, 2, 255, 0, 1},
	    .key = str_of(key),
	};
	if (v.address_len < 6)
		memset(v.address + v.address_len, 0, sizeof(v.address) - v.address_len);
	if (event_is_orphan(v.kind))
		v.link = 0;
	if (v.kind == EVENT_ORPHAN_KEY)
		v.key = STR("wp-\xff.php");
	const struct event_visitor from = {agents[n % ARRAY_LEN(agents)], referrers[n % ARRAY_LEN(referrers)],
	                                   n % 2 ? STR("de-AT") : STR_NULL};
	assert_true(event_writer_visit(w, &v, &from));
}

static void write_impression(struct event_writer *w, unsigned n)
{
	char id[32];
	snprintf(id, sizeof(id), "id \"%u\"\n", n % IDS);
	const struct event_impression i = {SAMPLE_TIME_MS + n, SAMPLE_TIME_MS + n + 1, str_of(id),
	                                   STR("user-\xc3\xa9"), n % 2 ? STR("ad\t1") : STR("ad")};
	assert_true(event_writer_impression(w, &i));
}

/* Of all kinds, by one writer. */
static void write_by(unsigned writer, unsigned count)
{
	struct event_writer *w = event_log_writer(*queue_bed.log, writer);
	for (unsigned i = 0; i < count; i++, written++) {
		if (written % 2)
			write_visit(w, written / 2);
		else
			write_impression(w, written / 2);
		if (written % 50 == 0)
			event_writer_rejected(w, 3);
	}
	assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), 0);
}

/* Where every test begins. */
static void write_all(unsigned count)
{
	queue_bed.need();
	for (unsigned i = 0; i < WRITERS; i++)
		write_by(i, count);
	queue_bed.arrive();
}

/* Reading */

/* One round, of at most so many events; how many came that are counted. */
static size_t round_read(struct queue *q, size_t max, struct lines *ret)
{
	struct queue_event ev;
	size_t before = ret->count;
	assert_int_equal(q->ops->refresh(q), 0);
	int r = 1;
	while (ret->count - before < max && (r = q->ops->next(q, &ev)) == 1)
		given_add(ret, q, &ev);
	if (r == ERR_UNCERTAIN)
		fail_msg("streams have gone to somebody else");
	assert_true(r >= 0);
	return ret->count - before;
}

/* Rounds until so many have come; nothing is committed. */
static void read_count(struct queue *q, size_t count, struct lines *ret)
{
	int64_t end_ms = until_now_ms() + UNTIL_MS;
	struct lines got = {0};
	while (got.count < count) {
		if (round_read(q, count - got.count, &got) == 0) {
			if (until_now_ms() > end_ms)
				fail_msg("%zu of %zu events came", got.count, count);
			until_pause();
		}
	}
	for (size_t i = 0; i < got.count; i++) {
		if (ret->count + got.count > ret->cap) {
			ret->cap = ret->count + got.count;
			ret->all = reallocarray(ret->all, ret->cap, sizeof(*ret->all));
			assert_non_null(ret->all);
		}
		ret->all[ret->count++] = got.all[i];
	}
	free(got.all);
}

static void commit(struct queue *q)
{
	const struct advance *advances;
	size_t count = q->ops->advances(q, &advances);
	if (queue_bed.keeps_positions)
		keeper_take(queue_bed.keeper, advances, count);
	assert_int_equal(q->ops->commit(q), 0);
	assert_int_equal(q->ops->advances(q, &advances), 0);
}

static void assert_nothing_more(struct queue *q)
{
	struct lines more = {0};
	for (int i = 0; i < 3; i++)
		assert_int_equal(round_read(q, 1, &more), 0);
	lines_release(&more);
}

/* Tests */

TEST(what_was_written_comes_out_once_and_as_it_was)
{
	struct lines want = {0}, got = {0};
	write_all(100);
	logged(&want);
	struct queue *q = queue_bed.open();
	read_count(q, want.count, &got);
	assert_nothing_more(q);
	assert_false(q->ops->is_behind(q));
	assert_lines_equal(&want, &got);
	commit(q);
	q->ops->free(q);
	lines_release(&want);
	lines_release(&got);
}

TEST(what_was_rewound_comes_again_and_what_was_committed_does_not)
{
	struct lines want = {0}, kept = {0}, lost = {0};
	write_all(60);
	logged(&want);
	struct queue *q = queue_bed.open();
	read_count(q, 50, &kept);
	commit(q);
	read_count(q, 40, &lost);
	q->ops->rewind(q);
	read_count(q, want.count - 50, &kept);
	assert_nothing_more(q);
	q->ops->rewind(q);
	lines_release(&lost);
	read_count(q, want.count - 50, &lost);
	commit(q);
	assert_nothing_more(q);
	assert_lines_equal(&want, &kept);
	q->ops->free(q);
	lines_release(&want);
	lines_release(&kept);
	lines_release(&lost);
}

TEST(another_reader_goes_on_where_the_last_commit_was)
{
	struct lines want = {0}, kept = {0}, lost = {0};
	write_all(60);
	logged(&want);
	struct queue *q = queue_bed.open();
	read_count(q, 70, &kept);
	commit(q);
	read_count(q, 30, &lost);
	q->ops->free(q);
	q = queue_bed.open();
	read_count(q, want.count - 70, &kept);
	assert_nothing_more(q);
	assert_lines_equal(&want, &kept);
	commit(q);
	q->ops->free(q);
	lines_release(&want);
	lines_release(&kept);
	lines_release(&lost);
}

TEST(what_was_put_back_comes_again)
{
	struct lines want = {0}, got = {0};
	struct queue_event ev;
	write_all(20);
	logged(&want);
	struct queue *q = queue_bed.open();
	for (unsigned i = 0; got.count < want.count; i++) {
		/* Every other event is not taken at first. */
		int64_t end_ms = until_now_ms() + UNTIL_MS;
		int r;
		do {
			assert_true(until_now_ms() < end_ms);
			assert_int_equal(q->ops->refresh(q), 0);
			r = q->ops->next(q, &ev);
			assert_true(r >= 0);
		} while (r == 0);
		if (i % 2)
			q->ops->put_back(q);
		else
			given_add(&got, q, &ev);
		if (i % 16 == 0)
			commit(q);
	}
	commit(q);
	assert_nothing_more(q);
	assert_lines_equal(&want, &got);
	q->ops->free(q);
	lines_release(&want);
	lines_release(&got);
}

TEST(what_comes_later_and_after_a_new_start_of_the_log_comes_too)
{
	struct lines want = {0}, got = {0};
	write_all(10);
	logged(&want);
	struct queue *q = queue_bed.open();
	read_count(q, want.count, &got);
	commit(q);
	write_all(10);
	lines_release(&want);
	logged(&want);
	read_count(q, want.count - got.count, &got);
	commit(q);
	q->ops->free(q);
	queue_bed.reboot();
	write_all(10);
	lines_release(&want);
	logged(&want);
	q = queue_bed.open();
	read_count(q, want.count - got.count, &got);
	commit(q);
	assert_nothing_more(q);
	assert_lines_equal(&want, &got);
	q->ops->free(q);
	lines_release(&want);
	lines_release(&got);
}

/* The next line from *at on of an impression with this id, in hexadecimal, that this writer wrote. */
static const char *line_next(const struct lines *l, size_t *at, const char *id, unsigned writer)
{
	while (*at < l->count) {
		const char *line = l->all[(*at)++], *text = strchr(line, '|');
		unsigned long long node, segment;
		assert_int_equal(sscanf(line, "%llx %llx", &node, &segment), 2);
		bool is_by = queue_bed.has_one_order || (segment >> 24 & 0xff) == writer;
		if (is_by && line[KIND_AT] == '0' + EVENT_IMPRESSION &&
		    strncmp(text + 1, id, strlen(id)) == 0)
			return line;
	}
	return NULL;
}

static void assert_order_equal(const struct lines *a, const struct lines *b, const char *id, unsigned writer)
{
	size_t i = 0, k = 0, met = 0;
	for (;; met++) {
		const char *x = line_next(a, &i, id, writer), *y = line_next(b, &k, id, writer);
		if (!x || !y) {
			assert_ptr_equal(x, y);
			break;
		}
		assert_string_equal(x, y);
	}
	assert_true(met > 1);
}

TEST(impressions_with_the_same_id_come_in_the_same_order_again)
{
	struct lines all = {0}, first = {0}, second = {0};
	write_all(60);
	logged(&all);
	struct queue *q = queue_bed.open();
	read_count(q, all.count, &first);
	q->ops->rewind(q);
	read_count(q, all.count, &second);
	for (unsigned n = 0; n < IDS * WRITERS; n++) {
		char id[32];
		snprintf(id, sizeof(id), "696420223%u220a", n / WRITERS); /* id "N" and a line's end */
		assert_order_equal(&first, &second, id, n % WRITERS);
	}
	q->ops->free(q);
	lines_release(&all);
	lines_release(&first);
	lines_release(&second);
}

TEST(partitions_begin_where_they_ended)
{
	struct queue_keeper partitions = {0};
	struct lines want = {0}, got = {0};
	const struct advance *steps;
	write_all(40);
	logged(&want);
	struct queue *q = queue_bed.open();
	while (got.count < want.count) {
		read_count(q, MIN(want.count - got.count, (size_t)25), &got);
		size_t count = q->ops->partition_advances(q, &steps);
		for (size_t i = 0; i < count; i++) {
			struct position *p = keeper_find(&partitions, steps[i].stream);
			assert_int_equal(p->offset, steps[i].from);
			p->offset = steps[i].to;
		}
		commit(q);
	}
	uint64_t impressions = 0, through = 0;
	for (size_t i = 0; i < want.count; i++)
		impressions += want.all[i][KIND_AT] == '0' + EVENT_IMPRESSION;
	for (size_t i = 0; i < partitions.count; i++)
		through += partitions.positions[i].offset;
	assert_int_equal(through, impressions);
	q->ops->free(q);
	keeper_release(&partitions);
	lines_release(&want);
	lines_release(&got);
}

int queue_suite_run(const char *name, int (*setup)(void **state), int (*teardown)(void **state))
{
	return RUN_TESTS(.name = name, .setup = setup, .teardown = teardown);
}
