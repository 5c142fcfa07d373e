#include "lib/lease_puppet.h"

#include "lib/test.h"
#include "os/file.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static const char puppet_word[] = "--lease-puppet";

enum { CONTEND_LIFE_MS = 2 * UNTIL_MS, HEAR_MS = 3 * UNTIL_MS };

/* What a test says and does */

void puppet_start(struct puppet *p, const struct lease_backend *backend)
{
	int there[2], back[2];
	int piped = pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0;
	ASSERT(piped);
	p->pid = fork();
	ASSERT(p->pid >= 0);
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(there[0], STDIN_FILENO);
		dup2(back[1], STDOUT_FILENO);
		execl("/proc/self/exe", "lease-puppet", "lease_test", puppet_word, backend->name,
		      backend->address, NULL);
		_exit(127);
	}
	close(there[0]);
	close(back[1]);
	p->to = fdopen(there[1], "w");
	p->from = fdopen(back[0], "r");
	ASSERT(p->to && p->from);
}

void puppet_stop(struct puppet *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	fclose(p->to);
	fclose(p->from);
}

void puppet_tell(struct puppet *p, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vfprintf(p->to, fmt, ap);
	va_end(ap);
	fputc('\n', p->to);
	fflush(p->to);
}

const char *puppet_hear(struct puppet *p, char out[PUPPET_LINE_BYTES])
{
	/* It says one line for each command, so nothing is left in the buffer. */
	struct pollfd answer = {.fd = fileno(p->from), .events = POLLIN};
	if (poll(&answer, 1, HEAR_MS) != 1 || !fgets(out, PUPPET_LINE_BYTES, p->from))
		snprintf(out, PUPPET_LINE_BYTES, answer.revents ? "gone" : "silent");
	out[strcspn(out, "\n")] = '\0';
	return out;
}

/* What both do */

/* The file, locked, and the number in it. */
static int number_open(const char *path, uint64_t *ret)
{
	int fd, r;
	int64_t end_ms = until_now_ms() + UNTIL_MS;
	while ((r = file_lock(path, &fd, NULL)) == ERR_BUSY && until_now_ms() < end_ms)
		until_pause();
	ASSERT(r == 0);
	*ret = 0;
	ssize_t n = pread(fd, ret, sizeof(*ret), 0);
	ASSERT(n == 0 || n == sizeof(*ret));
	return fd;
}

bool guarded_write(const char *path, uint64_t fence)
{
	uint64_t seen;
	int fd = number_open(path, &seen);
	bool accepted = fence >= seen;
	if (accepted) {
		ssize_t n = pwrite(fd, &fence, sizeof(fence), 0);
		ASSERT(n == sizeof(fence));
	}
	close(fd);
	return accepted;
}

static struct lease *take_in_time(struct leases *l, struct str name)
{
	struct lease *lease = NULL;
	for (int64_t end_ms = until_now_ms() + UNTIL_MS; until_now_ms() < end_ms; until_pause()) {
		if (l->ops->take(l, name, CONTEND_LIFE_MS, &lease) == 0)
			return lease;
	}
	return NULL;
}

static bool contend_once(struct leases *l, struct str name, const char *inside, const char *largest)
{
	struct lease *lease = take_in_time(l, name);
	if (!lease)
		return false;
	uint64_t fence = l->ops->fence(lease), seen;
	int mark = open(inside, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int fd = number_open(largest, &seen);
	bool fine = mark >= 0 && fence > seen && pwrite(fd, &fence, sizeof(fence), 0) == sizeof(fence);
	close(fd);
	if (mark >= 0) {
		close(mark);
		unlink(inside);
	}
	l->ops->release(l, lease);
	return fine;
}

bool contend(struct leases *l, struct str name, int rounds, const char *folder)
{
	char inside[PUPPET_LINE_BYTES], largest[PUPPET_LINE_BYTES];
	snprintf(inside, sizeof(inside), "%s/inside", folder);
	snprintf(largest, sizeof(largest), "%s/largest", folder);
	bool fine = true;
	for (int i = 0; fine && i < rounds; i++)
		fine = contend_once(l, name, inside, largest);
	return fine;
}

/* What a puppet does */

static const char *take_said(int code)
{
	return code == ERR_BUSY ? "busy" : "unavailable";
}

static void obey(struct leases *l, struct lease **lease, const char *line)
{
	char name[128], path[256];
	unsigned long life_ms;
	int rounds;
	if (sscanf(line, "take %127s %lu", name, &life_ms) == 2) {
		int r = l->ops->take(l, str_of(name), life_ms, lease);
		if (r == 0)
			printf("taken %" PRIu64 "\n", l->ops->fence(*lease));
		else
			printf("%s\n", take_said(r));
	} else if (sscanf(line, "contend %127s %d %255s", name, &rounds, path) == 3) {
		printf("%s\n", contend(l, str_of(name), rounds, path) ? "done" : "spoilt");
	} else if (sscanf(line, "write %255s", path) == 1) {
		printf("%s\n", guarded_write(path, l->ops->fence(*lease)) ? "done" : "refused");
	} else if (strcmp(line, "held") == 0) {
		printf("%s\n", l->ops->is_held(*lease) ? "yes" : "no");
	} else if (strcmp(line, "release") == 0) {
		l->ops->release(l, steal(*lease));
		printf("released\n");
	} else {
		printf("what?\n");
	}
	fflush(stdout);
}

static int puppet_run(const struct lease_backend *backend, const char *address)
{
	struct leases *l = NULL;
	struct lease *lease = NULL;
	struct err e = {""};
	char line[PUPPET_LINE_BYTES];
	if (backend->open(address, &l, &e) != 0) {
		printf("%s\n", e.text);
		return 1;
	}
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		obey(l, &lease, line);
	}
	if (lease)
		l->ops->release(l, lease);
	leases_free(l);
	return 0;
}

bool lease_suite_is_puppet(int argc, char **argv, const struct lease_backend *backends, size_t n,
                           int *ret_status)
{
	if (argc != 4 || strcmp(argv[1], puppet_word) != 0)
		return false;
	*ret_status = 1;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(backends[i].name, argv[2]) == 0)
			*ret_status = puppet_run(&backends[i], argv[3]);
	}
	return true;
}
