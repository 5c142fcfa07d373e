#include "lib/redis_server.h"

#include "client/redis.h"
#include "lib/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sodium.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Debian's redis-tools has the server without the service; it goes by the name that it is called. */
#define PROGRAM "/usr/bin/redis-check-rdb"
#define NAME    "redis-server"

enum { ARGS_MAX = 24, PATIENT_MS = 10000, PORTS_MIN = 10000, PORT_TRIES = 1000 };

bool redis_server_exists(void)
{
	return access(PROGRAM, X_OK) == 0;
}

/* Ports from here on the system gives to outgoing connections. */
static unsigned ports_end(void)
{
	unsigned end = 32768;
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
	if (f && fscanf(f, "%u", &end) != 1)
		end = 32768;
	if (f)
		fclose(f);
	return MAX(end, 2 * PORTS_MIN);
}

/* One that no client takes meanwhile: a server that is started again must find its port free. */
static unsigned free_port(void)
{
	for (int i = 0; i < PORT_TRIES; i++) {
		unsigned port = PORTS_MIN + randombytes_uniform(ports_end() - PORTS_MIN);
		struct sockaddr_in a = {.sin_family = AF_INET,
		                        .sin_port = htons((uint16_t)port),
		                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_true(fd >= 0);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
		bool is_free = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
		close(fd);
		if (is_free)
			return port;
	}
	fail_msg("no port is free");
	return 0;
}

static void arguments_of_server(const struct redis_server *s, const char *const *args, const char **argv)
{
	static char port[8];
	snprintf(port, sizeof(port), "%u", s->port);
	const char *const own[] = {NAME,    "--port",       port,     "--bind", "127.0.0.1",
	                           "--dir", s->folder.path, "--save", ""};
	size_t n = ARRAY_LEN(own);
	memcpy(argv, own, sizeof(own));
	for (; args && *args && n < ARGS_MAX; args++)
		argv[n++] = *args;
}

static void arguments_of_sentinel(const struct redis_server *s, const char **argv)
{
	static char path[TEMP_PATH_BYTES];
	argv[0] = NAME;
	argv[1] = temp_path(&s->folder, "sentinel.conf", path);
	argv[2] = "--sentinel";
}

static void run(const struct redis_server *s, const char *const *args, pid_t parent)
{
	const char *argv[ARGS_MAX + 1] = {NULL};
	if (s->is_sentinel)
		arguments_of_sentinel(s, argv);
	else
		arguments_of_server(s, args, argv);
	int null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		execv(PROGRAM, (char **)argv);
	_exit(127);
}

static bool answers(const struct redis_server *s)
{
	struct redis *r;
	struct redis_reply reply;
	struct err e;
	assert_int_equal(redis_new(str_of(s->url), &r, &e), 0);
	struct redis_conn *c = redis_take(r, &e);
	/* One that wants a password is ready as well. */
	bool ready = c ? redis_ask(c, REDIS_ARGS(STR("PING")), &reply) == 0
	               : strstr(e.text, "NOAUTH") != NULL;
	redis_return(c);
	redis_free(r);
	return ready;
}

static bool has_ended(struct redis_server *s)
{
	if (waitpid(s->pid, NULL, WNOHANG) == s->pid)
		s->pid = 0;
	return s->pid == 0;
}

/* Servers of a busy machine are given time; the product's own is for those that were stopped. */
static void launch(struct redis_server *s, const char *const *args)
{
	pid_t parent = getpid();
	redis_timeout_ms = PATIENT_MS;
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid == 0)
		run(s, args, parent);
	UNTIL(has_ended(s) || answers(s));
	if (s->pid == 0)
		fail_msg("redis-server ended at once");
}

static void prepare(struct redis_server *s)
{
	*s = (struct redis_server){.port = free_port()};
	temp_init(&s->folder);
	snprintf(s->url, sizeof(s->url), "redis://127.0.0.1:%u", s->port);
}

void redis_server_start(struct redis_server *s, const char *const *args)
{
	prepare(s);
	launch(s, args);
}

void redis_server_start_guarded_sentinel(struct redis_server *s, unsigned primary_port, const char *password)
{
	char path[TEMP_PATH_BYTES];
	prepare(s);
	s->is_sentinel = true;
	FILE *f = fopen(temp_path(&s->folder, "sentinel.conf", path), "w");
	assert_non_null(f);
	fprintf(f, "port %u\nbind 127.0.0.1\ndir %s\nsentinel monitor main 127.0.0.1 %u 1\n", s->port,
	        s->folder.path, primary_port);
	if (password)
		fprintf(f, "requirepass %s\nsentinel auth-pass main %s\n", password, password);
	assert_int_equal(fclose(f), 0);
	launch(s, NULL);
}

void redis_server_start_sentinel(struct redis_server *s, unsigned primary_port)
{
	redis_server_start_guarded_sentinel(s, primary_port, NULL);
}

void redis_server_restart(struct redis_server *s, const char *const *args)
{
	assert_int_equal(s->pid, 0);
	launch(s, args);
}

void redis_server_kill(struct redis_server *s)
{
	if (s->pid <= 0)
		return;
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	s->pid = 0;
}

void redis_server_signal(struct redis_server *s, int what)
{
	assert_true(s->pid > 0);
	assert_int_equal(kill(s->pid, what), 0);
	if (what == SIGSTOP)
		assert_int_equal(waitpid(s->pid, NULL, WUNTRACED), s->pid);
	redis_timeout_ms = what == SIGSTOP ? REDIS_TIMEOUT_MS : PATIENT_MS;
}

void redis_server_stop(struct redis_server *s)
{
	redis_server_kill(s);
	if (s->folder.path[0])
		temp_release(&s->folder);
	s->folder.path[0] = '\0';
}
