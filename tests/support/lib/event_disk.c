#include "lib/event_disk.h"

#include "lib/test.h"
#include "os/sys.h"

#include <dirent.h>

enum { STEPS_MAX = 4096, NODES_MAX = 256, FDS_MAX = 256, NAME_BYTES = 64, FOLDER = NODES_MAX };

/* `node` is a file, whatever its name is. */
struct step {
	enum { STEP_WRITE, STEP_TRUNCATE, STEP_SYNC, STEP_NAME, STEP_RENAME, STEP_UNLINK } kind;
	int node;
	size_t at, len; /* len: also the new length */
	uint8_t *data;
	char name[NAME_BYTES], to[NAME_BYTES];
};

struct file {
	uint8_t *data;
	size_t len;
};

struct name {
	char text[NAME_BYTES];
	int node; /* -1: free */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all of it */
static char root[256];
static struct step steps[STEPS_MAX];
static size_t step_count;
static int node_count;
static int node_of_fd[FDS_MAX]; /* 0: none, otherwise 1 + node */
static struct name names[NODES_MAX];

static struct step *step_add(int kind, int node)
{
	assert_true(step_count < STEPS_MAX);
	steps[step_count] = (struct step){.kind = kind, .node = node};
	return &steps[step_count++];
}

/* The name inside our folder; "" for the folder itself; NULL for others. */
static const char *own_name(const char *path)
{
	size_t len = strlen(root);
	if (strncmp(path, root, len) != 0)
		return NULL;
	return path[len] == '/' ? path + len + 1 : path[len] == '\0' ? "" : NULL;
}

static void name_copy(char out[NAME_BYTES], const char *text)
{
	size_t len = strlen(text);
	assert_true(len < NAME_BYTES);
	memcpy(out, text, len + 1);
}

static struct name *name_find(struct name *table, const char *text)
{
	for (size_t i = 0; i < NODES_MAX; i++) {
		if (table[i].text[0] && strcmp(table[i].text, text) == 0)
			return &table[i];
	}
	return NULL;
}

static void name_set(struct name *table, const char *text, int node)
{
	struct name *n = name_find(table, text);
	for (size_t i = 0; !n && i < NODES_MAX; i++) {
		if (!table[i].text[0])
			n = &table[i];
	}
	assert_non_null(n);
	name_copy(n->text, text);
	n->node = node;
}

static void name_drop(struct name *table, const char *text)
{
	struct name *n = name_find(table, text);
	if (n)
		n->text[0] = '\0';
}

/* The recorder */

static int record_open(const char *path, int flags, mode_t mode)
{
	pthread_mutex_lock(&lock);
	const char *name = own_name(path);
	int fd = os_sys_real.open(path, flags, mode);
	if (name && fd >= 0) {
		assert_true(fd < FDS_MAX);
		const struct name *known = name_find(names, name);
		int node = name[0] == '\0' ? FOLDER : known ? known->node : node_count++;
		assert_true(node <= FOLDER);
		node_of_fd[fd] = 1 + node;
		if (node != FOLDER && !known) {
			name_set(names, name, node);
			name_copy(step_add(STEP_NAME, node)->name, name);
		}
		if (flags & O_TRUNC)
			step_add(STEP_TRUNCATE, node);
	}
	pthread_mutex_unlock(&lock);
	return fd;
}

static int record_close(int fd)
{
	pthread_mutex_lock(&lock);
	node_of_fd[fd] = 0;
	int r = os_sys_real.close(fd);
	pthread_mutex_unlock(&lock);
	return r;
}

static void note_write(int fd, const void *data, size_t len, size_t at)
{
	if (node_of_fd[fd] == 0)
		return;
	struct step *s = step_add(STEP_WRITE, node_of_fd[fd] - 1);
	s->at = at;
	s->len = len;
	s->data = malloc(len);
	memcpy(s->data, data, len);
}

static ssize_t record_write(int fd, const void *data, size_t len)
{
	pthread_mutex_lock(&lock);
	off_t at = lseek(fd, 0, SEEK_CUR);
	ssize_t n = os_sys_real.write(fd, data, len);
	assert_int_equal(n, len);
	note_write(fd, data, len, (size_t)at);
	pthread_mutex_unlock(&lock);
	return n;
}

static ssize_t record_pwritev(int fd, const struct iovec *iov, int count, off_t at)
{
	pthread_mutex_lock(&lock);
	assert_int_equal(count, 1);
	ssize_t n = os_sys_real.pwritev(fd, iov, count, at);
	assert_int_equal(n, iov->iov_len);
	note_write(fd, iov->iov_base, iov->iov_len, (size_t)at);
	pthread_mutex_unlock(&lock);
	return n;
}

static int record_sync(int fd)
{
	pthread_mutex_lock(&lock);
	if (node_of_fd[fd] != 0)
		step_add(STEP_SYNC, node_of_fd[fd] - 1);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int record_ftruncate(int fd, off_t len)
{
	pthread_mutex_lock(&lock);
	int r = os_sys_real.ftruncate(fd, len);
	assert_int_equal(r, 0);
	step_add(STEP_TRUNCATE, node_of_fd[fd] - 1)->len = (size_t)len;
	pthread_mutex_unlock(&lock);
	return r;
}

static int record_rename(const char *from, const char *to)
{
	pthread_mutex_lock(&lock);
	int r = os_sys_real.rename(from, to);
	assert_int_equal(r, 0);
	const struct name *moved = name_find(names, own_name(from));
	assert_non_null(moved);
	int node = moved->node;
	struct step *s = step_add(STEP_RENAME, node);
	name_copy(s->name, own_name(from));
	name_copy(s->to, own_name(to));
	name_drop(names, s->name);
	name_set(names, s->to, node);
	pthread_mutex_unlock(&lock);
	return r;
}

static int record_unlink(const char *path)
{
	pthread_mutex_lock(&lock);
	int r = os_sys_real.unlink(path);
	if (r == 0) {
		name_copy(step_add(STEP_UNLINK, -1)->name, own_name(path));
		name_drop(names, own_name(path));
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void disk_record(const char *folder)
{
	disk_release();
	snprintf(root, sizeof(root), "%s", folder);
	os_sys.open = record_open;
	os_sys.close = record_close;
	os_sys.write = record_write;
	os_sys.pwritev = record_pwritev;
	os_sys.fsync = record_sync;
	os_sys.fdatasync = record_sync;
	os_sys.ftruncate = record_ftruncate;
	os_sys.rename = record_rename;
	os_sys.unlink = record_unlink;
}

void disk_stop(void)
{
	os_sys = os_sys_real;
}

void disk_release(void)
{
	for (size_t i = 0; i < step_count; i++)
		free(steps[i].data);
	step_count = 0;
	node_count = 0;
	memset(node_of_fd, 0, sizeof(node_of_fd));
	memset(names, 0, sizeof(names));
}

size_t disk_moment(void)
{
	pthread_mutex_lock(&lock);
	size_t moment = step_count;
	pthread_mutex_unlock(&lock);
	return moment;
}

/* Restoring */

static uint64_t random_below(uint64_t *random, uint64_t below)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random % below;
}

static bool is_about_names(const struct step *s)
{
	return s->kind == STEP_NAME || s->kind == STEP_RENAME || s->kind == STEP_UNLINK;
}

static bool is_synced(size_t i, size_t moment)
{
	int node = is_about_names(&steps[i]) ? FOLDER : steps[i].node;
	for (size_t j = i + 1; j < moment; j++) {
		if (steps[j].kind == STEP_SYNC && steps[j].node == node)
			return true;
	}
	return false;
}

static void file_grow(struct file *f, size_t len)
{
	if (len <= f->len)
		return;
	f->data = realloc(f->data, len);
	assert_non_null(f->data);
	memset(f->data + f->len, 0, len - f->len);
	f->len = len;
}

static void file_put(struct file *f, const struct step *s, size_t from, size_t to)
{
	if (from >= to)
		return;
	file_grow(f, s->at + to);
	memcpy(f->data + s->at + from, s->data + from, to - from);
}

/* Any of the sectors that the write touches. */
static void file_put_sectors(struct file *f, const struct step *s, uint64_t *random)
{
	size_t from = 0;
	while (from < s->len) {
		size_t to = MIN(s->len, from + DISK_SECTOR_BYTES - (s->at + from) % DISK_SECTOR_BYTES);
		if (random_below(random, 2))
			file_put(f, s, from, to);
		from = to;
	}
}

static void perform(struct file *f, const struct step *s)
{
	if (s->kind == STEP_WRITE) {
		file_put(f, s, 0, s->len);
	} else if (s->kind == STEP_TRUNCATE) {
		file_grow(f, s->len);
		f->len = s->len;
	}
}

static void perform_perhaps(struct file *f, const struct step *s, uint64_t lose_in_8, uint64_t *random)
{
	if (random_below(random, 8) < lose_in_8)
		return;
	if (s->kind == STEP_WRITE && random_below(random, 3) == 0)
		file_put_sectors(f, s, random);
	else
		perform(f, s);
}

static void perform_name(struct name *table, const struct step *s)
{
	if (s->kind == STEP_NAME) {
		name_set(table, s->name, s->node);
	} else if (s->kind == STEP_UNLINK) {
		name_drop(table, s->name);
	} else {
		name_drop(table, s->name);
		name_set(table, s->to, s->node);
	}
}

static void folder_empty(const char *folder)
{
	DIR *dir = opendir(folder);
	assert_non_null(dir);
	struct dirent *entry;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(dir), entry->d_name, 0);
	}
	closedir(dir);
}

static void folder_fill(const char *folder, const struct name *table, const struct file *files)
{
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	for (size_t i = 0; i < NODES_MAX; i++) {
		if (!table[i].text[0])
			continue;
		int fd = openat(dir, table[i].text, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		const struct file *f = &files[table[i].node];
		if (f->len > 0)
			assert_int_equal(write(fd, f->data, f->len), f->len);
		close(fd);
	}
	close(dir);
}

void disk_restore(const char *folder, size_t moment, enum disk_loss loss, uint64_t *random)
{
	static struct file files[NODES_MAX];
	static struct name table[NODES_MAX];
	uint64_t lose_in_8 = loss == DISK_WORST ? 8 : random_below(random, 9);
	bool names_go_on = true;
	memset(files, 0, sizeof(files));
	memset(table, 0, sizeof(table));
	for (size_t i = 0; i < moment; i++) {
		const struct step *s = &steps[i];
		bool certain = loss == DISK_KILLED || is_synced(i, moment);
		if (is_about_names(s)) {
			names_go_on = names_go_on && (certain || random_below(random, 8) >= lose_in_8);
			if (names_go_on)
				perform_name(table, s);
		} else if (loss == DISK_KILLED && i + 1 == moment && s->kind == STEP_WRITE) {
			file_put(&files[s->node], s, 0, random_below(random, s->len + 1));
		} else if (certain) {
			perform(&files[s->node], s);
		} else {
			perform_perhaps(&files[s->node], s, lose_in_8, random);
		}
	}
	folder_empty(folder);
	folder_fill(folder, table, files);
	for (int i = 0; i < node_count; i++)
		free(files[i].data);
}
