/*
 * What the way through Kafka costs: events to JSON and back (beside jansson), a log forwarded, and read again
 * as a stats worker does. Half of the events are clicks, half impressions. CPU time is that of the whole
 * process, librdkafka's threads included. A line of JSON for each round.
 *
 *   queue kafka://HOST:PORT FOLDER ROUNDS EVENTS
 */
#include "event/log.h"
#include "os/clock.h"
#include "queue/forwarder.h"
#include "queue/queue_kafka.h"
#include "queue/queue_log.h"
#include "queue/wire.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { WRITERS = 2, SAMPLES = 1000, PASSES = 200, BATCH = 65536, PATIENCE_MS = 600000 };
#define TIME_MS 1789000000000LL

static const struct event_settings settings = {.visits = true,
                                               .flush_ms = 600000,
                                               .spool_bytes = 1ULL << 40,
                                               .segment_bytes = 1 << 26,
                                               .keep_ms = 1ULL << 40,
                                               .keep_bytes = 1ULL << 40};

static void must(bool fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "queue: %s\n", what);
	exit(1);
}

static int64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* JSON */

static const struct wire_texts texts = {
    STR("Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 "
        "Safari/537.36"),
    STR("https://news.example.org/2026/11/an-article?utm_source=mail"), STR("de-AT")};

static struct event event_of(unsigned n, char id[40])
{
	if (n % 2)
		return (struct event){.kind = EVENT_VISIT,
		                      .visit = {.time_ms = TIME_MS + n,
		                                .link = 1 + n % 1000,
		                                .visitor = 0x9e3779b97f4a7c15ULL * n,
		                                .country = {'A', 'T'},
		                                .address_len = 3,
		                                .address = {192, 0, 2},
		                                .key = STR("aB3dE5g")}};
	snprintf(id, 40, "%08x-0000-4000-8000-%012x", n * 2654435761U, n);
	return (struct event){
	    .kind = EVENT_IMPRESSION,
	    .impression = {TIME_MS + n, TIME_MS + n, str_of(id), STR("user-12345678"), STR("ad-4711")}};
}

static void json_measure(void)
{
	static struct wire_message message;
	struct buf out = {0};
	size_t at[SAMPLES + 1] = {0};
	char id[40];
	int64_t start = cpu_ns();
	for (unsigned pass = 0; pass < PASSES; pass++) {
		out.len = 0;
		for (unsigned n = 0; n < SAMPLES; n++) {
			struct event ev = event_of(n, id);
			wire_encode(&out, (struct event_id){7, 1ULL << 32, n}, &ev, &texts);
			at[n + 1] = out.len;
		}
	}
	int64_t encoded = cpu_ns();
	for (unsigned pass = 0; pass < PASSES; pass++) {
		for (unsigned n = 0; n < SAMPLES; n++) {
			wire_decode(n % 2 ? WIRE_VISITS : WIRE_IMPRESSIONS,
			            str_n(out.data + at[n], at[n + 1] - at[n]), TIME_MS, &message);
			must(message.event.kind != EVENT_UNUSABLE, "a message cannot be read");
		}
	}
	int64_t decoded = cpu_ns();
	for (unsigned pass = 0; pass < PASSES / 10; pass++) {
		for (unsigned n = 0; n < SAMPLES; n++) {
			json_t *json = json_loadb(out.data + at[n], at[n + 1] - at[n], 0, NULL);
			must(json != NULL, "jansson does not read it");
			json_decref(json);
		}
	}
	int64_t by_jansson = cpu_ns();
	double each = (double)PASSES * SAMPLES;
	printf("{\"bytes\":%zu,\"encode_ns\":%.0f,\"decode_ns\":%.0f,\"jansson_ns\":%.0f", out.len / SAMPLES,
	       (double)(encoded - start) / each, (double)(decoded - encoded) / each,
	       (double)(by_jansson - decoded) * 10 / each);
	buf_release(&out);
}

/* The log, and from there to Kafka */

static void log_fill(struct event_log *log, unsigned count)
{
	const struct event_visitor from = {texts.agent, texts.referrer, texts.language};
	char id[40];
	for (unsigned n = 0; n < count; n++) {
		struct event_writer *w = event_log_writer(log, n / 2 % WRITERS);
		struct event ev = event_of(n, id);
		must(ev.kind == EVENT_VISIT ? event_writer_visit(w, &ev.visit, &from)
		                            : event_writer_impression(w, &ev.impression),
		     "the log does not take an event");
		if (n % 1024 == 1023)
			must(event_writer_flush(w, TIME_MS) == 0, "the log cannot be written");
	}
	for (unsigned i = 0; i < WRITERS; i++)
		must(event_writer_flush(event_log_writer(log, i), TIME_MS) == 0, "the log cannot be written");
}

static void forward_measure(struct event_log *log, const struct queue_settings *s, const char *folder,
                            unsigned count)
{
	struct queue *q;
	struct forwarder *f;
	struct err e;
	char checkpoint[512];
	snprintf(checkpoint, sizeof(checkpoint), "%s/checkpoint", folder);
	const struct queue_log_config from = {
	    .log = log, .settings = &settings, .checkpoint = checkpoint, .boots_in_order = true};
	must(queue_log_new(&from, &q, &e) == 0, "the log cannot be read");
	const struct forwarder_config config = {.settings = s, .queue = q};
	int64_t start = clock_mono_ns(), cpu = cpu_ns();
	must(forwarder_start(&config, &f, &e) == 0, e.text);
	must(queue_consumer_catch_up(forwarder_consumer(f), PATIENCE_MS) == 0,
	     "the forwarder does not catch up");
	double took_s = (double)(clock_mono_ns() - start) / 1e9;
	printf(",\"forward_s\":%.0f,\"forward_cpu_us\":%.2f", count / took_s,
	       (double)(cpu_ns() - cpu) / 1000 / count);
	forwarder_stop(f);
	q->ops->free(q);
}

static void read_measure(const struct queue_settings *s, unsigned count)
{
	struct queue *q;
	struct queue_event ev;
	struct err e;
	unsigned got = 0;
	int64_t start = 0, cpu = 0, give_up_ms = clock_mono_ms() + PATIENCE_MS;
	const struct queue_kafka_config config = {.settings = s};
	must(queue_kafka_new(&config, &q, &e) == 0, "the queue cannot be opened");
	while (got < count) {
		unsigned batch = 0;
		must(clock_mono_ms() < give_up_ms && q->ops->refresh(q) == 0, "nothing comes");
		while (batch < BATCH && q->ops->next(q, &ev) == 1) {
			if (got + batch++ == 0) { /* joining the group is not what is measured */
				start = clock_mono_ns();
				cpu = cpu_ns();
			}
		}
		q->ops->commit(q);
		got += batch;
	}
	double took_s = (double)(clock_mono_ns() - start) / 1e9;
	printf(",\"read_s\":%.0f,\"read_cpu_us\":%.2f}\n", count / took_s,
	       (double)(cpu_ns() - cpu) / 1000 / count);
	fflush(stdout);
	q->ops->free(q);
}

int main(int argc, char **argv)
{
	must(argc == 5, "usage: queue kafka://HOST:PORT FOLDER ROUNDS EVENTS");
	unsigned count = (unsigned)atoi(argv[4]);
	for (int round = 0; round < atoi(argv[3]); round++) {
		char folder[256], prefix[64];
		struct event_log *log;
		struct err e;
		snprintf(folder, sizeof(folder), "%s/log%d", argv[2], round);
		snprintf(prefix, sizeof(prefix), "bench-%d-%d-", (int)getpid(), round);
		const struct queue_settings s = {
		    .url = argv[1], .group = prefix, .prefix = prefix, .partitions = 8, .options = ""};
		const struct event_log_config config = {
		    .path = folder, .settings = &settings, .writers = WRITERS};
		json_measure();
		must(event_log_open(&config, &log, &e) == 0, "the log cannot be opened");
		log_fill(log, count);
		forward_measure(log, &s, folder, count);
		event_log_close(log);
		read_measure(&s, count);
	}
	return 0;
}
