/*
 * A load client with a memory. One thread, many keep-alive connections, optional pipelining.
 *
 *   hammer redirect --port P --keys FILE [--ledger FILE] (--count N | --seconds S)
 *                   [--rate N] [--skew PERCENT] [--browsers 1]
 *   hammer create   --port P --token KEY --ledger FILE --prefix TEXT --count N
 *   hammer verify   --port P --ledger FILE
 *   hammer events   --port P --ledger FILE --prefix TEXT [--ads N] [--batch N] (--count N | --seconds S)
 *   hammer get      --port P --path PATH (--count N | --seconds S)
 *
 * For all of them: [--connections 64] [--pipeline 1].
 *
 * A ledger says what was acknowledged, whatever happens to the server meanwhile; when the server goes away
 * the client stops, and says how much it had asked for in vain. create     a line "key url" for every 201
 * that was read, and nothing else redirect   at the end, a line "key answered doubtful" for every key that
 * was asked for; doubtful are requests that were sent, or nearly, and never answered events     a line "id ad
 * ok|refused|doubtful" for every event; refused is what an answer other than "taken" says `verify` follows
 * every link of a `create` ledger and compares. FILE of --keys has keys in its lines' first words, so a
 * ledger will do.
 *
 * Without --rate every connection asks again as soon as it is answered. With it, N requests a second are due
 * at fixed moments, whether earlier ones are answered or not, and a request's latency counts from the moment
 * it was due: a server that stalls cannot hide that by slowing the client down. --skew 80 sends 80 % of the
 * requests to the first fifth of the keys. --browsers 1 adds the header fields that browsers send.
 *
 * The result is one JSON object on standard output. Exit status 0 unless the arguments were wrong or nobody
 * listens.
 */
#include "browsers.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	CONNECTIONS_MAX = 4096,
	PIPELINE_MAX = 64,
	BATCH_MAX = 1000,
	BUFFER_BYTES = 128 * 1024,
	LATENCIES_MAX = 4 << 20,
};

enum mode { REDIRECT, CREATE, VERIFY, EVENTS, GET, MODES };
static const char *const mode_names[MODES] = {"redirect", "create", "verify", "events", "get"};

struct entry {
	char *key;
	char *url; /* NULL in a plain list of keys */
	uint64_t answered, doubtful;
};

struct conn {
	int fd;
	bool dead;
	bool stuck; /* waits for room to send */
	char out[BUFFER_BYTES];
	size_t out_len, out_sent;
	char in[BUFFER_BYTES];
	size_t in_len;
	/* requests on their way, oldest first */
	size_t tags[PIPELINE_MAX];
	uint64_t due_ns[PIPELINE_MAX];
	unsigned first, waiting;
};

static struct {
	enum mode mode;
	int port;
	int connections;
	int pipeline;
	int batch;
	int ads;
	int skew;
	int browsers;
	uint64_t count;
	double seconds;
	double rate;
	const char *keys_path, *ledger_path, *token, *prefix, *path;
} options = {.connections = 64, .pipeline = 1, .batch = 1, .ads = 10};

static struct entry *entries;
static size_t entry_count;
static FILE *ledger;
static int epoll_fd;
static struct conn *conns;
static int alive;
static struct conn *idle[CONNECTIONS_MAX]; /* a ring; with --rate only */
static size_t idle_first, idle_count;
static uint64_t sent, answered, acknowledged, wrong, broken;
static uint64_t by_class[6];
static uint32_t *latencies_us;
static size_t latency_count;
static uint64_t start_ns, end_ns;
static uint64_t random_state = 88172645463325252ULL;
static char first_wrong[512];

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void die(const char *what)
{
	fprintf(stderr, "hammer: %s\n", what);
	exit(2);
}

static void load_entries(const char *path, bool with_urls)
{
	FILE *f = fopen(path, "r");
	if (!f)
		die("cannot read the keys or the ledger");
	size_t cap = 0, line_cap = 0;
	char *line = NULL;
	ssize_t len;
	while ((len = getline(&line, &line_cap, f)) > 0) {
		if (line[len - 1] != '\n')
			break; /* a line that was cut off was never whole */
		line[len - 1] = '\0';
		if (entry_count == cap) {
			cap = cap ? cap * 2 : 1024;
			entries = realloc(entries, cap * sizeof(*entries));
			if (!entries)
				die("out of memory");
		}
		char *space = strchr(line, ' ');
		if (space)
			*space = '\0';
		if (with_urls && !space)
			die("a ledger line has no URL");
		entries[entry_count++] = (struct entry){.key = strdup(line),
		                                        .url = with_urls ? strdup(space + 1) : NULL};
	}
	free(line);
	fclose(f);
	if (entry_count == 0)
		die("no keys");
}

/* What is due */

static bool more_to_send(void)
{
	if (options.count > 0)
		return sent < options.count;
	if (options.rate > 0)
		return (double)sent < options.seconds * options.rate;
	return now_ns() < end_ns;
}

static uint64_t next_due_ns(void)
{
	return start_ns + (uint64_t)((double)sent * 1e9 / options.rate);
}

static size_t pick_entry(void)
{
	size_t hot = entry_count / 5;
	if (options.skew == 0 || hot == 0)
		return next_random() % entry_count;
	if (next_random() % 100 < (uint64_t)options.skew)
		return next_random() % hot;
	return hot + next_random() % (entry_count - hot);
}

/* Writing requests: each returns what snprintf does, or more than there is room for. */

static int write_get(char *to, size_t room, const char *key)
{
	if (!options.browsers)
		return snprintf(to, room, "GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", key);
	struct browser b = browser_pick(next_random());
	return snprintf(
	    to, room,
	    "GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive\r\nUpgrade-Insecure-Requests: "
	    "1\r\n"
	    "User-Agent: %s\r\n"
	    "Accept: "
	    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n"
	    "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n%s%s%s"
	    "Accept-Encoding: gzip, deflate, br\r\nAccept-Language: %s\r\n\r\n",
	    key, b.agent, *b.referrer ? "Referer: " : "", b.referrer, *b.referrer ? "\r\n" : "", b.language);
}

static int write_create(char *to, size_t room, size_t number)
{
	char body[512];
	int len = snprintf(body, sizeof(body), "{\"original_url\":\"https://example.com/%s/%zu\"}",
	                   options.prefix, number);
	return snprintf(to, room,
	                "POST /api/v1/links HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
	                "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
	                options.token, len, body);
}

/* The request's events are numbered from `number` times the batch. */
static int write_events(char *to, size_t room, size_t number)
{
	static char body[BUFFER_BYTES];
	size_t len = 0;
	uint64_t ms = clock_ns(CLOCK_REALTIME) / 1000000;
	for (size_t i = 0; i < (size_t)options.batch; i++) {
		size_t event = number * (size_t)options.batch + i;
		int n = snprintf(
		    body + len, sizeof(body) - len,
		    "%s{\"id\":\"%s-%zu\",\"ts\":%lu,\"userId\":\"user-%zu\",\"adId\":\"ad-%zu\"}",
		    options.batch == 1 ? ""
		    : i == 0           ? "["
		                       : ",",
		    options.prefix, event, ms, event % 997, event % (size_t)options.ads);
		len += (size_t)n;
		if (len >= sizeof(body) - 1)
			return BUFFER_BYTES;
	}
	return snprintf(to, room,
	                "POST /event HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
	                "Content-Length: %zu\r\n\r\n%s%s",
	                len + (options.batch > 1), body, options.batch > 1 ? "]" : "");
}

static void queue_request(struct conn *c, uint64_t due_ns)
{
	char *to = c->out + c->out_len;
	size_t room = sizeof(c->out) - c->out_len;
	size_t tag = sent;
	int n = 0;
	switch (options.mode) {
	case REDIRECT:
		tag = pick_entry();
		n = write_get(to, room, entries[tag].key);
		break;
	case VERIFY: n = write_get(to, room, entries[tag].key); break;
	case CREATE: n = write_create(to, room, tag); break;
	case EVENTS: n = write_events(to, room, tag); break;
	default: n = write_get(to, room, options.path + 1); break;
	}
	if (n < 0 || (size_t)n >= room)
		die("a request is too long");
	unsigned slot = (c->first + c->waiting) % PIPELINE_MAX;
	c->tags[slot] = tag;
	c->due_ns[slot] = due_ns;
	c->waiting++;
	c->out_len += (size_t)n;
	sent++;
}

/* The ledger */

static void note_events(size_t request, const char *what)
{
	for (size_t i = 0; i < (size_t)options.batch; i++) {
		size_t event = request * (size_t)options.batch + i;
		fprintf(ledger, "%s-%zu ad-%zu %s\n", options.prefix, event, event % (size_t)options.ads,
		        what);
	}
}

static void note_redirects(void)
{
	for (size_t i = 0; i < entry_count; i++) {
		if (entries[i].answered + entries[i].doubtful > 0)
			fprintf(ledger, "%s %lu %lu\n", entries[i].key, entries[i].answered,
			        entries[i].doubtful);
	}
}

static void note_doubtful(size_t tag)
{
	broken++;
	if (options.mode == REDIRECT)
		entries[tag].doubtful++;
	else if (options.mode == EVENTS)
		note_events(tag, "doubtful");
}

static void note_wrong(const char *key, const char *head, size_t len)
{
	wrong++;
	if (first_wrong[0])
		return;
	int n = snprintf(first_wrong, sizeof(first_wrong), "%s: %.*s", key, (int)(len > 200 ? 200 : len),
	                 head);
	for (int i = 0; i < n && i < (int)sizeof(first_wrong); i++) {
		if (first_wrong[i] == '"' || first_wrong[i] == '\\' || (unsigned char)first_wrong[i] < 0x20)
			first_wrong[i] = ' ';
	}
}

/* Connections */

static void drop(struct conn *c)
{
	if (c->dead)
		return;
	c->dead = true;
	alive--;
	for (; c->waiting > 0; c->waiting--) {
		note_doubtful(c->tags[c->first]);
		c->first = (c->first + 1) % PIPELINE_MAX;
	}
	close(c->fd);
}

static void set_stuck(struct conn *c, bool stuck)
{
	struct epoll_event ev = {.events = stuck ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
	if (c->stuck != stuck)
		epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &ev);
	c->stuck = stuck;
}

static void flush(struct conn *c)
{
	while (!c->dead && c->out_sent < c->out_len) {
		ssize_t n = send(c->fd, c->out + c->out_sent, c->out_len - c->out_sent, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			set_stuck(c, true);
			return;
		}
		if (n < 0) {
			drop(c);
			return;
		}
		c->out_sent += (size_t)n;
	}
	c->out_len = c->out_sent = 0;
	if (!c->dead)
		set_stuck(c, false);
}

static const char *field(const char *head, size_t len, const char *name, size_t *ret_len)
{
	const char *at = memmem(head, len, name, strlen(name));
	if (!at)
		return NULL;
	at += strlen(name);
	const char *end = memchr(at, '\r', len - (size_t)(at - head));
	*ret_len = end ? (size_t)(end - at) : 0;
	return end ? at : NULL;
}

/* Reading answers */

struct answer {
	int status;
	const char *head, *body;
	size_t head_len, body_len;
};

static void judge_create(size_t tag, const struct answer *a)
{
	const char *key = memmem(a->body, a->body_len, "\"key\":\"", 7);
	const char *end = key ? memchr(key + 7, '"', a->body_len - (size_t)(key + 7 - a->body)) : NULL;
	if (a->status != 201 || !end) {
		note_wrong("create", a->head, a->head_len);
		return;
	}
	fprintf(ledger, "%.*s https://example.com/%s/%zu\n", (int)(end - key - 7), key + 7, options.prefix,
	        tag);
	acknowledged++;
}

static void judge_event(size_t tag, const struct answer *a)
{
	char all[64];
	int n = snprintf(all, sizeof(all), "{\"accepted\":%d,\"rejected\":[]}", options.batch);
	bool taken = options.batch == 1 ? a->status == 204
	                                : a->status == 200 && a->body_len >= (size_t)n &&
	                                      memcmp(a->body, all, (size_t)n) == 0;
	note_events(tag, taken ? "ok" : "refused");
	if (taken)
		acknowledged += (uint64_t)options.batch;
	else if (a->status != 503)
		note_wrong("event", a->head, a->head_len);
}

static void judge_redirect(struct entry *e, const struct answer *a)
{
	size_t len = 0;
	const char *location = field(a->head, a->head_len, "\r\nLocation: ", &len);
	bool fine = a->status >= 301 && a->status <= 308 && location &&
	            (!e->url || (strlen(e->url) == len && memcmp(e->url, location, len) == 0));
	if (fine)
		e->answered++;
	else
		note_wrong(e->key, a->head, a->head_len);
}

static void judge(size_t tag, const struct answer *a)
{
	by_class[a->status / 100 < 6 ? a->status / 100 : 0]++;
	switch (options.mode) {
	case CREATE: judge_create(tag, a); break;
	case EVENTS: judge_event(tag, a); break;
	case GET:
		if (a->status != 200)
			note_wrong(options.path, a->head, a->head_len);
		break;
	default: judge_redirect(&entries[tag], a); break;
	}
}

/* The length of the whole response at `in`; 0 when it is not there yet. */
static size_t take_response(const char *in, size_t len, struct answer *ret)
{
	const char *end = memmem(in, len, "\r\n\r\n", 4);
	if (!end)
		return 0;
	size_t head_len = (size_t)(end - in) + 4, text_len = 0, body_len = 0;
	const char *text = field(in, head_len, "\r\nContent-Length: ", &text_len);
	if (text)
		body_len = strtoul(text, NULL, 10);
	if (len < head_len + body_len)
		return 0;
	*ret = (struct answer){atoi(in + 9), in, in + head_len, head_len, body_len};
	return head_len + body_len;
}

static void read_responses(struct conn *c)
{
	size_t at = 0, len;
	struct answer a;
	while (c->waiting > 0 && (len = take_response(c->in + at, c->in_len - at, &a)) > 0) {
		judge(c->tags[c->first], &a);
		if (latency_count < LATENCIES_MAX)
			latencies_us[latency_count++] = (uint32_t)((now_ns() - c->due_ns[c->first]) / 1000);
		c->first = (c->first + 1) % PIPELINE_MAX;
		c->waiting--;
		answered++;
		at += len;
	}
	memmove(c->in, c->in + at, c->in_len - at);
	c->in_len -= at;
}

/* Sending */

static void send_batch(struct conn *c)
{
	for (int i = 0; i < options.pipeline && more_to_send(); i++)
		queue_request(c, now_ns());
	flush(c);
}

static void make_idle(struct conn *c)
{
	idle[(idle_first + idle_count++) % CONNECTIONS_MAX] = c;
}

/* Everything that is due goes out, as long as somebody is free to carry it. */
static void send_due(void)
{
	while (more_to_send() && next_due_ns() <= now_ns() && idle_count > 0) {
		struct conn *c = idle[idle_first];
		idle_first = (idle_first + 1) % CONNECTIONS_MAX;
		idle_count--;
		if (c->dead)
			continue;
		queue_request(c, next_due_ns());
		flush(c);
	}
}

static void on_readable(struct conn *c)
{
	if (c->in_len == sizeof(c->in))
		die("an answer is too long");
	ssize_t n = recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len, 0);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		drop(c);
		return;
	}
	if (n < 0)
		return;
	c->in_len += (size_t)n;
	bool was_busy = c->waiting > 0;
	read_responses(c);
	if (c->waiting > 0)
		return; /* a pipelined batch goes out whole */
	if (options.rate > 0 && was_busy)
		make_idle(c);
	else if (options.rate <= 0)
		send_batch(c);
}

static bool connect_to(struct conn *c)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof(to)) != 0)
		return false;
	int one = 1;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	fcntl(c->fd, F_SETFL, O_NONBLOCK);
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) == 0;
}

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static uint32_t percentile(double share)
{
	return latency_count ? latencies_us[(size_t)((double)(latency_count - 1) * share)] : 0;
}

static void print_result(double seconds)
{
	qsort(latencies_us, latency_count, sizeof(*latencies_us), compare_u32);
	printf("{\"sent\":%lu,\"answered\":%lu,\"acknowledged\":%lu,\"wrong\":%lu,\"broken\":%lu,"
	       "\"connections_left\":%d,"
	       "\"seconds\":%.3f,\"per_second\":%.0f,\"p50_us\":%u,\"p99_us\":%u,\"max_us\":%u,"
	       "\"2xx\":%lu,\"3xx\":%lu,\"4xx\":%lu,\"5xx\":%lu,\"first_wrong\":\"%s\"}\n",
	       sent, answered, acknowledged, wrong, broken, alive, seconds,
	       seconds > 0 ? (double)answered / seconds : 0, percentile(0.5), percentile(0.99),
	       percentile(1.0), by_class[2], by_class[3], by_class[4], by_class[5], first_wrong);
}

/* With --rate, no longer than until the next request is due. */
static int wait_events(struct epoll_event *events, int max)
{
	struct timespec patience = {.tv_sec = 1};
	if (options.rate > 0 && more_to_send() && idle_count > 0) {
		uint64_t now = now_ns(), due = next_due_ns();
		uint64_t left = due > now ? due - now : 0;
		if (left < 1000000000)
			patience = (struct timespec){.tv_nsec = (long)left};
	}
	return epoll_pwait2(epoll_fd, events, max, &patience, NULL);
}

static void connect_all(void)
{
	conns = calloc((size_t)options.connections, sizeof(*conns));
	latencies_us = malloc(LATENCIES_MAX * sizeof(*latencies_us));
	epoll_fd = epoll_create1(0);
	if (!conns || !latencies_us || epoll_fd < 0)
		die("out of memory");
	for (int i = 0; i < options.connections; i++) {
		if (!connect_to(&conns[i]))
			die("nobody listens there");
	}
	alive = options.connections;
}

static void run(void)
{
	connect_all();
	start_ns = now_ns();
	end_ns = start_ns + (uint64_t)(options.seconds * 1e9);
	for (int i = 0; i < options.connections; i++) {
		if (options.rate > 0)
			make_idle(&conns[i]);
		else
			send_batch(&conns[i]);
	}
	while (alive > 0 && (more_to_send() || answered + broken < sent)) {
		struct epoll_event events[256];
		if (options.rate > 0)
			send_due();
		int n = wait_events(events, 256);
		for (int i = 0; i < n; i++) {
			struct conn *c = events[i].data.ptr;
			if (!c->dead && c->stuck)
				flush(c);
			if (!c->dead)
				on_readable(c);
		}
	}
	print_result((double)(now_ns() - start_ns) / 1e9);
	free(conns);
}

/* Options */

static const struct {
	const char *name;
	int *number;
	const char **text;
	double *real;
	uint64_t *count;
} option_rows[] = {
    {"--port", .number = &options.port},         {"--connections", .number = &options.connections},
    {"--pipeline", .number = &options.pipeline}, {"--batch", .number = &options.batch},
    {"--ads", .number = &options.ads},           {"--skew", .number = &options.skew},
    {"--browsers", .number = &options.browsers}, {"--count", .count = &options.count},
    {"--seconds", .real = &options.seconds},     {"--rate", .real = &options.rate},
    {"--keys", .text = &options.keys_path},      {"--ledger", .text = &options.ledger_path},
    {"--token", .text = &options.token},         {"--prefix", .text = &options.prefix},
    {"--path", .text = &options.path},
};

static void set_option(const char *name, const char *value)
{
	for (size_t i = 0; i < sizeof(option_rows) / sizeof(option_rows[0]); i++) {
		if (strcmp(name, option_rows[i].name) != 0)
			continue;
		if (option_rows[i].number)
			*option_rows[i].number = atoi(value);
		else if (option_rows[i].text)
			*option_rows[i].text = value;
		else if (option_rows[i].real)
			*option_rows[i].real = atof(value);
		else
			*option_rows[i].count = strtoull(value, NULL, 10);
		return;
	}
	die("unknown option");
}

static void parse_options(int argc, char **argv)
{
	int mode = 0;
	while (argc > 1 && mode < MODES && strcmp(argv[1], mode_names[mode]) != 0)
		mode++;
	if (argc < 2 || mode == MODES || argc % 2 != 0)
		die("usage: hammer redirect|create|verify|events|get --option value ...");
	options.mode = (enum mode)mode;
	for (int i = 2; i < argc; i += 2)
		set_option(argv[i], argv[i + 1]);
	if (options.port <= 0 || options.connections < 1 || options.connections > CONNECTIONS_MAX ||
	    options.pipeline < 1 || options.pipeline > PIPELINE_MAX || options.batch < 1 ||
	    options.batch > BATCH_MAX || options.ads < 1)
		die("--port is missing, or --connections, --pipeline, --batch or --ads is out of range");
	if (options.rate > 0 && options.pipeline > 1)
		die("--rate and --pipeline do not go together");
}

static void need(bool fine, const char *what)
{
	if (!fine)
		die(what);
}

static void prepare(void)
{
	switch (options.mode) {
	case REDIRECT:
		need(options.keys_path, "--keys is missing");
		load_entries(options.keys_path, false);
		break;
	case CREATE:
		need(options.ledger_path && options.token && options.prefix,
		     "--ledger, --token and --prefix are needed");
		break;
	case EVENTS: need(options.ledger_path && options.prefix, "--ledger and --prefix are needed"); break;
	case GET: need(options.path && options.path[0] == '/', "--path is missing"); break;
	default:
		need(options.ledger_path, "--ledger is missing");
		load_entries(options.ledger_path, true);
		options.count = entry_count;
		return; /* it only reads the ledger */
	}
	if (!options.ledger_path)
		return;
	ledger = fopen(options.ledger_path, "a");
	need(ledger, "cannot write the ledger");
}

int main(int argc, char **argv)
{
	parse_options(argc, argv);
	prepare();
	run();
	if (ledger && options.mode == REDIRECT)
		note_redirects();
	if (ledger && fclose(ledger) != 0)
		die("cannot write the ledger");
	return 0;
}
