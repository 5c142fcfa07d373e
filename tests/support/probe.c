/*
 * Preloaded under a real server: counts what its worker threads (named "worker-…") allocate, free and lock,
 * in a file that the test maps. The file named by CURT_PROBE_FILE holds three 64-bit counters: allocations,
 * frees, locks.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

struct counters {
	_Atomic uint64_t allocations;
	_Atomic uint64_t frees;
	_Atomic uint64_t locks;
};

static struct counters fallback;
static struct counters *counters = &fallback;
static __thread bool known_worker __attribute__((tls_model("initial-exec")));

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *p, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern void __libc_free(void *p);

/* The library's own function. Looked up when first needed: other libraries take locks before our constructor
 * runs. */
static void *real(const char *name, _Atomic(void *) *kept)
{
	void *found = atomic_load_explicit(kept, memory_order_relaxed);
	if (!found) {
		found = dlsym(RTLD_NEXT, name);
		atomic_store_explicit(kept, found, memory_order_relaxed);
	}
	return found;
}

static bool in_worker(void)
{
	if (!known_worker) {
		char name[16] = "";
		prctl(PR_GET_NAME, name);
		known_worker = strncmp(name, "worker-", 7) == 0;
	}
	return known_worker;
}

#define COUNT(what)                                                                          \
	do {                                                                                 \
		if (in_worker())                                                             \
			atomic_fetch_add_explicit(&counters->what, 1, memory_order_relaxed); \
	} while (0)

__attribute__((constructor)) static void probe_start(void)
{
	const char *path = getenv("CURT_PROBE_FILE");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (fd < 0 || ftruncate(fd, sizeof(struct counters)) != 0)
		abort();
	void *map = mmap(NULL, sizeof(struct counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		abort();
	close(fd);
	unsetenv("CURT_PROBE_FILE"); /* the server refuses settings it does not know */
	counters = map;
}

void *malloc(size_t bytes)
{
	COUNT(allocations);
	return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	COUNT(allocations);
	return __libc_calloc(count, bytes);
}

void *realloc(void *p, size_t bytes)
{
	COUNT(allocations);
	return __libc_realloc(p, bytes);
}

void *memalign(size_t align, size_t bytes)
{
	COUNT(allocations);
	return __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
	COUNT(allocations);
	return __libc_memalign(align, bytes);
}

int posix_memalign(void **ret, size_t align, size_t bytes)
{
	COUNT(allocations);
	*ret = __libc_memalign(align, bytes);
	return *ret ? 0 : 12;
}

void free(void *p)
{
	if (p)
		COUNT(frees);
	__libc_free(p);
}

#define COUNTED_LOCK(name, type)                              \
	int name(type *lock)                                  \
	{                                                     \
		static _Atomic(void *) kept;                  \
		int (*function)(type *) = real(#name, &kept); \
		COUNT(locks);                                 \
		return function(lock);                        \
	}

COUNTED_LOCK(pthread_mutex_lock, pthread_mutex_t)
COUNTED_LOCK(pthread_mutex_trylock, pthread_mutex_t)
COUNTED_LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
COUNTED_LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
COUNTED_LOCK(pthread_spin_lock, pthread_spinlock_t)
