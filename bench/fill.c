/*
 * Fills an event log as a server's workers would have, only faster: what is left to do is the stats worker's,
 * which is then measured. No server may be running on the folder.
 *
 *   fill EVENTS-FOLDER clicks COUNT LINKS        by visitors as they come, 80 % of them to the first fifth of
 * the links fill EVENTS-FOLDER impressions COUNT ADS     with ids of their own
 *
 * Either way the events are spread evenly over the hour before now, in order.
 */
#include "browsers.h"
#include "event/log.h"
#include "os/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { WRITERS = 2, TURN_EVENTS = 64, HOUR_MS = 3600 * 1000 };

static uint64_t random_state = 88172645463325252ULL;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void must(bool fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "fill: %s\n", what);
	exit(1);
}

static uint64_t pick_link(uint64_t links)
{
	uint64_t hot = links / 5;
	if (hot == 0)
		return 1 + next_random() % links;
	return 1 + (next_random() % 100 < 80 ? next_random() % hot : hot + next_random() % (links - hot));
}

static bool write_click(struct event_writer *w, int64_t time_ms, uint64_t links)
{
	struct browser b = browser_pick(next_random());
	const struct event_visitor from = {
	    .agent = str_of(b.agent),
	    .referrer = *b.referrer ? str_of(b.referrer) : STR_NULL,
	    .language = str_n(b.language, strcspn(b.language, ",;")),
	};
	char key[24];
	uint64_t link = pick_link(links), who = next_random();
	struct event_visit v = {.time_ms = time_ms, .link = link, .visitor = who | 1, .address_len = 3};
	memcpy(v.address, &who, 3);
	v.key = str_n(key, (size_t)snprintf(key, sizeof(key), "k%06" PRIu64, link));
	return event_writer_visit(w, &v, &from);
}

static bool write_impression(struct event_writer *w, int64_t time_ms, uint64_t number, uint64_t ads)
{
	char id[40], user[40], ad[40];
	const struct event_impression i = {
	    .time_ms = time_ms,
	    .received_ms = time_ms,
	    .id = str_n(id,
	                (size_t)snprintf(id, sizeof(id), "%016" PRIx64 "-%" PRIu64, next_random(), number)),
	    .user = str_n(user,
	                  (size_t)snprintf(user, sizeof(user), "user-%" PRIu64, next_random() % 1000000)),
	    .ad = str_n(ad, (size_t)snprintf(ad, sizeof(ad), "ad-%" PRIu64, next_random() % ads)),
	};
	return event_writer_impression(w, &i);
}

int main(int argc, char **argv)
{
	must(argc == 5, "usage: fill EVENTS-FOLDER clicks|impressions COUNT LINKS|ADS");
	bool clicks = strcmp(argv[2], "clicks") == 0;
	uint64_t count = strtoull(argv[3], NULL, 10), kinds = strtoull(argv[4], NULL, 10);
	must(count > 0 && kinds > 0, "COUNT and LINKS or ADS must be above zero");
	const struct event_settings settings = {
	    .visits = true, .flush_ms = 1000, .spool_bytes = 1ULL << 44, .segment_bytes = 64 << 20};
	const struct event_log_config config = {.path = argv[1], .settings = &settings, .writers = WRITERS};
	struct event_log *log;
	struct err e;
	must(event_log_open(&config, &log, &e) == 0, "the event log cannot be opened");
	int64_t now_ms = clock_real_ms();
	for (uint64_t i = 0; i < count; i++) {
		struct event_writer *w = event_log_writer(log, i / TURN_EVENTS % WRITERS);
		int64_t time_ms = now_ms - HOUR_MS + (int64_t)((double)i / (double)count * HOUR_MS);
		must(clicks ? write_click(w, time_ms, kinds) : write_impression(w, time_ms, i, kinds),
		     "an event was not taken");
		if (i % TURN_EVENTS == TURN_EVENTS - 1 || i == count - 1)
			must(event_writer_flush(w, time_ms) == 0, "the log cannot be written");
	}
	event_log_close(log);
	return 0;
}
