/*
 * A load client with a memory. One thread, many keep-alive connections, optional pipelining.
 *
 *   hammer redirect --port P --keys FILE [--connections 64] [--pipeline 1] (--count N | --seconds S)
 *   hammer create   --port P --token KEY --ledger FILE --prefix TEXT [--connections 64] --count N
 *   hammer verify   --port P --ledger FILE [--connections 64] [--pipeline 16]
 *
 * `create` appends a line "key url" to the ledger for every 201 it has read, and nothing else: the ledger is
 * what was acknowledged, whatever happens to the server meanwhile. When the server goes away it stops and
 * says so. `verify` follows every link of a ledger and compares. FILE of `redirect` has keys in its lines'
 * first words, so a ledger will do.
 *
 * The result is one JSON object on standard output. Exit status 0 unless the arguments were wrong or nobody
 * listens.
 */
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

enum { CONNECTIONS_MAX = 4096, PIPELINE_MAX = 64, BUFFER_BYTES = 64 * 1024, LATENCIES_MAX = 4 << 20 };

enum mode { REDIRECT, CREATE, VERIFY };

struct entry {
	char *key;
	char *url; /* NULL in a plain list of keys */
};

struct conn {
	int fd;
	bool dead;
	char out[BUFFER_BYTES];
	size_t out_len, out_sent;
	char in[BUFFER_BYTES];
	size_t in_len;
	/* requests on their way, oldest first */
	size_t tags[PIPELINE_MAX];
	uint64_t started_ns[PIPELINE_MAX];
	unsigned first, waiting;
};

static struct {
	enum mode mode;
	int port;
	int connections;
	int pipeline;
	uint64_t count;
	double seconds;
	const char *keys_path, *ledger_path, *token, *prefix;
} options = {.connections = 64, .pipeline = 1};

static struct entry *entries;
static size_t entry_count;
static FILE *ledger;
static int epoll_fd;
static uint64_t sent, answered, acknowledged, wrong, broken;
static uint64_t by_class[6];
static uint32_t *latencies_us;
static size_t latency_count;
static uint64_t end_ns;
static uint64_t random_state = 88172645463325252ULL;
static char first_wrong[512];

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
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
		entries[entry_count].key = strdup(line);
		entries[entry_count].url = with_urls ? strdup(space + 1) : NULL;
		entry_count++;
	}
	free(line);
	fclose(f);
	if (entry_count == 0)
		die("no keys");
}

static bool more_to_send(void)
{
	if (options.seconds > 0)
		return now_ns() < end_ns;
	return sent < options.count;
}

static void queue_request(struct conn *c)
{
	char *to = c->out + c->out_len;
	size_t room = sizeof(c->out) - c->out_len;
	size_t tag = 0;
	int n;
	if (options.mode == CREATE) {
		char body[512];
		tag = sent;
		int body_len = snprintf(body, sizeof(body),
		                        "{\"original_url\":\"https://example.com/%s/%zu\"}", options.prefix,
		                        tag);
		n = snprintf(to, room,
		             "POST /api/v1/links HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
		             "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		             options.token, body_len, body);
	} else {
		tag = options.mode == VERIFY ? sent : next_random() % entry_count;
		n = snprintf(to, room, "GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", entries[tag].key);
	}
	if (n < 0 || (size_t)n >= room)
		die("a request is too long");
	unsigned slot = (c->first + c->waiting) % PIPELINE_MAX;
	c->tags[slot] = tag;
	c->started_ns[slot] = now_ns();
	c->waiting++;
	c->out_len += (size_t)n;
	sent++;
}

static void drop(struct conn *c)
{
	if (c->dead)
		return;
	c->dead = true;
	broken += c->waiting;
	close(c->fd);
}

static void flush(struct conn *c)
{
	while (!c->dead && c->out_sent < c->out_len) {
		ssize_t n = send(c->fd, c->out + c->out_sent, c->out_len - c->out_sent, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			drop(c);
			return;
		}
		c->out_sent += (size_t)n;
	}
	c->out_len = c->out_sent = 0;
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

static void judge(size_t tag, int status, const char *head, size_t head_len, const char *body,
                  size_t body_len)
{
	if (options.mode == CREATE) {
		const char *key = memmem(body, body_len, "\"key\":\"", 7);
		const char *end = key ? memchr(key + 7, '"', body_len - (size_t)(key + 7 - body)) : NULL;
		if (status != 201 || !end) {
			note_wrong("create", head, head_len);
			return;
		}
		fprintf(ledger, "%.*s https://example.com/%s/%zu\n", (int)(end - key - 7), key + 7,
		        options.prefix, tag);
		acknowledged++;
		return;
	}
	size_t len = 0;
	const char *location = field(head, head_len, "\r\nLocation: ", &len);
	const char *wanted = entries[tag].url;
	bool fine = status >= 301 && status <= 308 && location &&
	            (!wanted || (strlen(wanted) == len && memcmp(wanted, location, len) == 0));
	if (!fine)
		note_wrong(entries[tag].key, head, head_len);
}

/* Takes whole responses off the front of the input. */
static void read_responses(struct conn *c)
{
	size_t at = 0;
	while (c->waiting > 0) {
		char *head = c->in + at;
		size_t left = c->in_len - at;
		char *end = memmem(head, left, "\r\n\r\n", 4);
		if (!end)
			break;
		size_t head_len = (size_t)(end - head) + 4;
		size_t text_len = 0, body_len = 0;
		const char *text = field(head, head_len, "\r\nContent-Length: ", &text_len);
		if (text)
			body_len = strtoul(text, NULL, 10);
		if (left < head_len + body_len)
			break;
		int status = atoi(head + 9);
		by_class[status / 100 < 6 ? status / 100 : 0]++;
		judge(c->tags[c->first], status, head, head_len, head + head_len, body_len);
		if (latency_count < LATENCIES_MAX)
			latencies_us[latency_count++] = (uint32_t)((now_ns() - c->started_ns[c->first]) /
			                                           1000);
		c->first = (c->first + 1) % PIPELINE_MAX;
		c->waiting--;
		answered++;
		at += head_len + body_len;
	}
	memmove(c->in, c->in + at, c->in_len - at);
	c->in_len -= at;
}

static void on_readable(struct conn *c)
{
	ssize_t n = recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len, 0);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		drop(c);
		return;
	}
	if (n < 0)
		return;
	c->in_len += (size_t)n;
	read_responses(c);
	if (c->waiting > 0)
		return; /* a pipelined batch goes out whole */
	for (int i = 0; i < options.pipeline && more_to_send(); i++)
		queue_request(c);
	flush(c);
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

static void print_result(double seconds, int alive)
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

static void run(void)
{
	struct conn *conns = calloc((size_t)options.connections, sizeof(*conns));
	latencies_us = malloc(LATENCIES_MAX * sizeof(*latencies_us));
	epoll_fd = epoll_create1(0);
	if (!conns || !latencies_us || epoll_fd < 0)
		die("out of memory");
	for (int i = 0; i < options.connections; i++) {
		if (!connect_to(&conns[i]))
			die("nobody listens there");
	}
	uint64_t start_ns = now_ns();
	end_ns = start_ns + (uint64_t)(options.seconds * 1e9);
	for (int i = 0; i < options.connections; i++) {
		for (int k = 0; k < options.pipeline && more_to_send(); k++)
			queue_request(&conns[i]);
		flush(&conns[i]);
	}
	int alive = options.connections;
	while (alive > 0 && (more_to_send() || answered + broken < sent)) {
		struct epoll_event events[256];
		int n = epoll_wait(epoll_fd, events, 256, 1000);
		for (int i = 0; i < n; i++) {
			struct conn *c = events[i].data.ptr;
			if (!c->dead)
				on_readable(c);
			if (c->dead)
				alive--;
		}
	}
	print_result((double)(now_ns() - start_ns) / 1e9, alive);
	free(conns);
}

static void parse_options(int argc, char **argv)
{
	static const char *const modes[] = {"redirect", "create", "verify"};
	if (argc < 2)
		die("which of redirect, create, verify?");
	int mode = -1;
	for (int i = 0; i < 3; i++) {
		if (strcmp(argv[1], modes[i]) == 0)
			mode = i;
	}
	if (mode < 0 || argc % 2 != 0)
		die("usage: hammer redirect|create|verify --option value ...");
	options.mode = (enum mode)mode;
	for (int i = 2; i < argc; i += 2) {
		const char *name = argv[i], *value = argv[i + 1];
		if (strcmp(name, "--port") == 0)
			options.port = atoi(value);
		else if (strcmp(name, "--connections") == 0)
			options.connections = atoi(value);
		else if (strcmp(name, "--pipeline") == 0)
			options.pipeline = atoi(value);
		else if (strcmp(name, "--count") == 0)
			options.count = strtoull(value, NULL, 10);
		else if (strcmp(name, "--seconds") == 0)
			options.seconds = atof(value);
		else if (strcmp(name, "--keys") == 0)
			options.keys_path = value;
		else if (strcmp(name, "--ledger") == 0)
			options.ledger_path = value;
		else if (strcmp(name, "--token") == 0)
			options.token = value;
		else if (strcmp(name, "--prefix") == 0)
			options.prefix = value;
		else
			die("unknown option");
	}
	if (options.port <= 0 || options.connections < 1 || options.connections > CONNECTIONS_MAX ||
	    options.pipeline < 1 || options.pipeline > PIPELINE_MAX)
		die("--port is missing, or --connections or --pipeline is out of range");
}

int main(int argc, char **argv)
{
	parse_options(argc, argv);
	switch (options.mode) {
	case REDIRECT:
		if (!options.keys_path)
			die("--keys is missing");
		load_entries(options.keys_path, false);
		break;
	case CREATE:
		if (!options.ledger_path || !options.token || !options.prefix)
			die("--ledger, --token and --prefix are needed");
		ledger = fopen(options.ledger_path, "a");
		if (!ledger)
			die("cannot write the ledger");
		break;
	case VERIFY:
		if (!options.ledger_path)
			die("--ledger is missing");
		load_entries(options.ledger_path, true);
		options.count = entry_count;
		break;
	}
	run();
	if (ledger && fclose(ledger) != 0)
		die("cannot write the ledger");
	return 0;
}
