/* Leases between processes of one machine: an exclusive lock on one file per name. The kernel keeps the
 * lock exactly as long as the holder lives, so nothing is renewed, and a paused holder keeps it. The file
 * stores the fencing number, and stays when the lease is released. */
#include "base/buf.h"
#include "lease/backends.h"
#include "os/file.h"
#include "os/sys.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FENCE_DIGITS = 20, FENCE_BYTES = FENCE_DIGITS + 1 };

struct leases_local {
	struct leases base;
	char *folder;
};

struct lease {
	int fd; /* closing it releases the lock */
	uint64_t fence;
};

static void local_free(struct leases *base)
{
	struct leases_local *l = container_of(base, struct leases_local, base);
	free(l->folder);
	free(l);
}

/* 0 if the file is new. */
static int fence_read(int fd, uint64_t *ret)
{
	char text[FENCE_BYTES];
	ssize_t n = os_sys.pread(fd, text, sizeof(text), 0);
	*ret = 0;
	if (n < 0)
		return ERR_UNAVAILABLE;
	if (n == 0)
		return 0;
	return n == FENCE_BYTES && str_u64(str_n(text, FENCE_DIGITS), ret) ? 0 : ERR_CORRUPT;
}

/* In place, and less than a sector: written completely or not at all. */
static int fence_write(int fd, uint64_t fence)
{
	char text[FENCE_BYTES + 1];
	snprintf(text, sizeof(text), "%0*llu\n", FENCE_DIGITS, (unsigned long long)fence);
	const struct iovec part = {text, FENCE_BYTES};
	if (os_sys.pwritev(fd, &part, 1, 0) != FENCE_BYTES || os_sys.fsync(fd) < 0)
		return ERR_UNAVAILABLE;
	return 0;
}

static int fence_raise(const struct leases_local *l, int fd, uint64_t *ret)
{
	uint64_t before;
	int r = fence_read(fd, &before);
	if (r < 0)
		return r;
	r = fence_write(fd, before + 1);
	if (r == 0 && before == 0)
		r = dir_sync(l->folder, NULL); /* otherwise the number could vanish with the file's name */
	if (r < 0 && before == 0)
		os_sys.ftruncate(fd, 0); /* a half-written first number would look like damage */
	*ret = before + 1;
	return r;
}

static int local_take(struct leases *base, struct str name, uint64_t life_ms, struct lease **ret)
{
	(void)life_ms;
	const struct leases_local *l = container_of(base, struct leases_local, base);
	char path[PATH_MAX];
	int len = snprintf(path, sizeof(path), "%s/%.*s.lease", l->folder, STR_ARG(name));
	if (len < 0 || (size_t)len >= sizeof(path))
		return ERR_UNAVAILABLE;
	struct lease *lease = calloc(1, sizeof(*lease));
	if (!lease)
		return ERR_NOMEM;
	int r = file_lock(path, &lease->fd, NULL);
	if (r == 0) {
		r = fence_raise(l, lease->fd, &lease->fence);
		if (r < 0)
			os_sys.close(lease->fd);
	}
	if (r < 0) {
		free(lease);
		return r;
	}
	*ret = lease;
	return 0;
}

static bool local_is_held(const struct lease *lease)
{
	return lease->fd >= 0;
}

static uint64_t local_fence(const struct lease *lease)
{
	return lease->fence;
}

static void local_release(struct leases *base, struct lease *lease)
{
	(void)base;
	os_sys.close(lease->fd);
	free(lease);
}

static int local_ping(struct leases *base, struct err *e)
{
	const struct leases_local *l = container_of(base, struct leases_local, base);
	if (access(l->folder, W_OK | X_OK) == 0)
		return 0;
	return err_set(e, ERR_UNAVAILABLE, "cannot write to the lease folder %s: %s", l->folder,
	               strerror(errno));
}

static const struct leases_ops local_ops = {
    .free = local_free,
    .take = local_take,
    .is_held = local_is_held,
    .fence = local_fence,
    .release = local_release,
    .ping = local_ping,
};

int leases_local_open(const char *folder, struct leases **ret, struct err *e)
{
	int r = dir_create(folder, 0700, e);
	if (r < 0)
		return r;
	struct leases_local *l = calloc(1, sizeof(*l));
	char *copy = strdup(folder);
	if (!l || !copy) {
		free(l);
		free(copy);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	l->base.ops = &local_ops;
	l->folder = copy;
	*ret = &l->base;
	return 0;
}
