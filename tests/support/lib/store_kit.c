#include "lib/store_kit.h"

#include "lib/test.h"
#include "store/backends.h"

static struct store_write create(struct arena *a, uint64_t id, struct str key)
{
	struct str url = arena_printf(a, "https://example.com/%llu", (unsigned long long)id);
	return (struct store_write){
	    .kind = STORE_LINK_CREATE,
	    .now_ms = KIT_NOW_MS,
	    .arena = a,
	    .ref = {.key = key},
	    .link = {.id = id,
	             .key = key,
	             .owner = 7,
	             .url = url,
	             .created_ms = KIT_NOW_MS,
	             .updated_ms = KIT_NOW_MS,
	             .redirect_status = 302,
	             .enabled = true},
	};
}

struct store_write kit_generated(struct arena *a, uint64_t id)
{
	struct store_write w = create(a, id, arena_printf(a, "g%llu", (unsigned long long)id));
	w.ref.id = id;
	return w;
}

struct store_write kit_alias(struct arena *a, uint64_t id, const char *name)
{
	struct store_write w = create(a, id, arena_str(a, str_of(name)));
	w.link.is_alias = true;
	return w;
}

struct registry_write kit_user(struct arena *a, const char *email, enum user_role role)
{
	return (struct registry_write){
	    .kind = REGISTRY_USER_CREATE,
	    .now_ms = KIT_NOW_MS,
	    .arena = a,
	    .user = {.email = arena_str(a, str_of(email)),
	             .first_name = STR("first"),
	             .role = role,
	             .enabled = true,
	             .created_ms = KIT_NOW_MS,
	             .updated_ms = KIT_NOW_MS},
	};
}

struct registry_write kit_key(struct arena *a, uint8_t digest, uint64_t user)
{
	struct registry_write w = kit_user(a, NULL, ROLE_EDITOR);
	w.kind = REGISTRY_KEY_CREATE;
	w.key = (struct key_record){.user = user,
	                            .name = STR("key"),
	                            .rights = RIGHTS_ALL,
	                            .created_ms = 11,
	                            .creates_max = digest,
	                            .period_ms = 60000};
	memset(w.key.digest, digest, sizeof(w.key.digest));
	return w;
}

struct store_write kit_creation(struct arena *a, const char *url, const char *alias)
{
	return (struct store_write){
	    .kind = STORE_LINK_CREATE,
	    .now_ms = 1000,
	    .arena = a,
	    .link = {.owner = 7,
	             .url = str_of(url),
	             .created_ms = 1000,
	             .updated_ms = 1000,
	             .redirect_status = 302,
	             .enabled = true,
	             .is_alias = alias != NULL,
	             .key = str_of(alias)},
	};
}

int kit_apply_link(struct store *s, struct store_write *w)
{
	w->result = 12345; /* must be overwritten */
	assert_int_equal(store_apply(s, w, 1), 0);
	return w->result;
}

int kit_apply_account(struct store *s, struct registry_write *w)
{
	w->result = 12345;
	assert_int_equal(registry_apply(s->registry, w, 1), 0);
	return w->result;
}

struct key_record *kit_keys(struct store *s, struct arena *a, size_t *ret_count)
{
	struct registry_page page = {.limit = SIZE_MAX, .arena = a};
	assert_int_equal(registry_keys(s->registry, &page), 0);
	assert_false(page.more);
	*ret_count = page.count;
	return page.keys;
}

int kit_session(struct store *s, struct arena *a, const uint8_t id[SESSION_ID_BYTES],
                struct session_record *ret)
{
	struct registry_account read = {.by = BY_SESSION, .text = str_n((const char *)id, SESSION_ID_BYTES)};
	assert_int_equal(registry_accounts(s->registry, &read, 1, a), 0);
	if (read.result == 0)
		*ret = read.session;
	return read.result;
}

int kit_find(struct store *s, struct arena *a, uint64_t id, const char *key, struct link_record *ret)
{
	struct store_lookup read = {.ref = {.id = id, .key = str_of(key)}, .arena = a, .result = 12345};
	assert_int_equal(store_lookup(s, &read, 1), 0);
	if (read.result == 0 && ret)
		*ret = read.link;
	return read.result;
}

int kit_find_generated(struct store *s, struct arena *a, uint64_t id)
{
	return kit_find(s, a, id, arena_printf(a, "g%llu", (unsigned long long)id).ptr, NULL);
}

enum { STORES_MAX = 4096 };

static struct temp *folders;
static size_t folder_count;

static void folders_remove(void)
{
	for (size_t i = 0; i < folder_count; i++)
		temp_release(&folders[i]);
	free(folders);
}

struct store *kit_store_new(void)
{
	char path[TEMP_PATH_BYTES];
	struct store *s = NULL;
	if (!folders) {
		folders = calloc(STORES_MAX, sizeof(*folders));
		atexit(folders_remove);
	}
	assert_true(folder_count < STORES_MAX);
	struct temp *folder = &folders[folder_count++];
	temp_init(folder);
	temp_path(folder, "links.db", path);
	MUST(store_sqlite_open(path, &s, &why));
	return s;
}
