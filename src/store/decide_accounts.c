#include "store/decide_accounts.h"

#include "store/rules.h"

void account_publish(const struct account_outcome *out, struct registry_write *w)
{
	w->result = out->result;
	if (out->result == 0 && out->has_user)
		w->user = out->user;
	if (out->result == 0 && out->has_key)
		w->key = out->key;
}

unsigned account_needs(const struct registry_write *w)
{
	switch (w->kind) {
	case REGISTRY_USER_CREATE: return NEEDS_EMAIL;
	case REGISTRY_USER_UPDATE: return NEEDS_USER | NEEDS_EMAIL | NEEDS_ADMINS;
	case REGISTRY_KEY_CREATE:
		return NEEDS_DIGEST | (w->key.user ? NEEDS_USER | NEEDS_LIVE_KEYS : NEEDS_EMAIL);
	case REGISTRY_KEY_REVOKE: return NEEDS_KEY | NEEDS_ADMIN_KEYS;
	case REGISTRY_KEY_USED: return NEEDS_KEY;
	default: return 0;
	}
}

void account_fetch_init(struct account_fetch *f, const struct registry_write *w)
{
	unsigned needs = account_needs(w);
	*f = (struct account_fetch){
	    .needs = needs,
	    .reads = {[READ_USER] = {.by = BY_USER,
	                             .id = w->kind == REGISTRY_KEY_CREATE ? w->key.user : w->user.id},
	              [READ_EMAIL] = {.by = BY_EMAIL, .text = w->user.email},
	              [READ_KEY] = {.by = BY_KEY, .id = w->key.id},
	              [READ_DIGEST] = {.by = BY_DIGEST,
	                               .text = str_n((const char *)w->key.digest, KEY_DIGEST_BYTES)}},
	    .is_wanted = {[READ_USER] = needs & NEEDS_USER,
	                  [READ_EMAIL] = needs & NEEDS_EMAIL && w->user.email.ptr,
	                  [READ_KEY] = needs & NEEDS_KEY,
	                  [READ_DIGEST] = needs & NEEDS_DIGEST},
	};
	for (size_t i = 0; i < ACCOUNT_READS; i++)
		f->reads[i].result = ERR_NOT_FOUND;
}

int account_fetch_take(struct account_fetch *f)
{
	const struct registry_account *reads = f->reads;
	for (size_t i = 0; i < ACCOUNT_READS; i++) {
		if (reads[i].result == ERR_NOMEM)
			return ERR_NOMEM;
		f->rows.is_damaged |= reads[i].result == ERR_CORRUPT;
	}
	f->rows.user = reads[READ_USER].result == 0 ? &reads[READ_USER].user : NULL;
	f->rows.email_holder = reads[READ_EMAIL].result == 0 ? reads[READ_EMAIL].user.id : 0;
	f->rows.key = reads[READ_KEY].result == 0 ? &reads[READ_KEY].key : NULL;
	f->rows.digest_exists = reads[READ_DIGEST].result == 0;
	return 0;
}

/* --- users --- */

/* An invalid role is a bug of the caller. */
static void role_check(enum user_role role)
{
	ASSERT(role >= ROLE_VIEWER && role <= ROLE_ADMIN);
}

static int user_create(const struct account_rows *rows, const struct registry_write *w,
                       struct account_outcome *out)
{
	role_check(w->user.role);
	if (w->user.email.ptr && rows->email_holder != 0) {
		out->result = ERR_CONFLICT;
		return 0;
	}
	out->has_user = true;
	out->user = w->user;
	out->user.generation = USER_GENERATION_FIRST;
	return EDIT_USER_INSERT;
}

/* Can the user sign in as an admin? */
static bool can_sign_in_as_admin(const struct user_record *user, bool has_key)
{
	return user->enabled && user->role == ROLE_ADMIN &&
	       (has_key || (user->email.ptr && user->password.ptr));
}

/* Applies a USER_UPDATE. Strings stay borrowed. */
static void user_change(const struct registry_write *w, struct user_record *to)
{
	unsigned fields = w->user_fields;
	fields_copy(&user_fields, fields, &w->user, to);
	role_check(to->role);
	if (fields & (USER_PASSWORD | USER_END_SESSIONS) || (fields & USER_ENABLED && !w->user.enabled))
		to->generation++;
	to->updated_ms = w->now_ms;
}

static int user_update(const struct account_rows *rows, const struct registry_write *w,
                       struct account_outcome *out)
{
	const struct user_record *before = rows->user;
	if (!before) {
		out->result = ERR_NOT_FOUND;
		return 0;
	}
	out->has_user = true;
	out->user = *before;
	user_change(w, &out->user);
	bool taken = w->user_fields & USER_EMAIL && w->user.email.ptr && rows->email_holder != 0 &&
	             rows->email_holder != before->id;
	bool shuts_out = can_sign_in_as_admin(before, rows->has_admin_key) &&
	                 !can_sign_in_as_admin(&out->user, rows->has_admin_key);
	out->result = taken ? ERR_CONFLICT : shuts_out && !rows->has_other_admin ? ERR_BUSY : 0;
	if (out->result != 0)
		return 0;
	if (user_own(w->arena, &out->user) != 0)
		return ERR_NOMEM;
	if (w->session.user == 0)
		return EDIT_USER_UPDATE;
	out->session = w->session;
	out->session.generation = out->user.generation;
	return EDIT_USER_UPDATE | EDIT_SESSION_INSERT;
}

/* --- API keys --- */

static int key_create(const struct account_rows *rows, const struct registry_write *w,
                      struct account_outcome *out)
{
	int edits = 0;
	/* Only admins create keys of users without an email address: no limit. */
	bool full = rows->user && rows->user->email.ptr && rows->live_keys >= ACCOUNT_KEYS_MAX;
	out->result = rows->digest_exists          ? ERR_CONFLICT
	              : w->key.user && !rows->user ? ERR_INVALID
	              : full                       ? ERR_LIMIT
	                                           : 0;
	if (out->result == 0 && w->key.user == 0)
		edits = user_create(rows, w, out);
	if (out->result != 0)
		return 0;
	out->has_key = true;
	out->key = w->key;
	return edits | EDIT_KEY_INSERT;
}

/* Copies the key to out->key. */
static bool key_take(const struct account_rows *rows, const struct registry_write *w,
                     struct account_outcome *out)
{
	bool found = rows->key && (w->key.user == 0 || w->key.user == rows->key->user);
	out->result = found ? 0 : ERR_NOT_FOUND;
	out->has_key = true;
	if (found)
		out->key = *rows->key;
	return found;
}

static int key_revoke(const struct account_rows *rows, const struct registry_write *w,
                      struct account_outcome *out)
{
	if (!key_take(rows, w, out))
		return 0;
	if (!str_own(w->arena, &out->key.name))
		return ERR_NOMEM;
	if (out->key.revoked_ms != 0)
		return 0;
	if (rows->admin_key_count == 1 && rows->admin_keys[0] == w->key.id) {
		out->result = ERR_CONFLICT;
		return 0;
	}
	out->key.revoked_ms = w->now_ms;
	return EDIT_KEY_REVOKE;
}

static int key_used(const struct account_rows *rows, const struct registry_write *w,
                    struct account_outcome *out)
{
	bool is_news = key_take(rows, w, out) && out->key.used_ms < w->key.used_ms;
	out->has_key = false;
	out->key.used_ms = w->key.used_ms;
	return is_news ? EDIT_KEY_USED : 0;
}

int decide_account(const struct account_rows *rows, const struct registry_write *w,
                   struct account_outcome *out)
{
	if (rows->is_damaged) {
		out->result = ERR_CORRUPT;
		return 0;
	}
	switch (w->kind) {
	case REGISTRY_USER_CREATE: return user_create(rows, w, out);
	case REGISTRY_USER_UPDATE: return user_update(rows, w, out);
	case REGISTRY_SESSION_CREATE: out->session = w->session; return EDIT_SESSION_INSERT;
	case REGISTRY_SESSION_END: return EDIT_SESSION_DELETE;
	case REGISTRY_KEY_CREATE: return key_create(rows, w, out);
	case REGISTRY_KEY_REVOKE: return key_revoke(rows, w, out);
	case REGISTRY_KEY_USED: return key_used(rows, w, out);
	case REGISTRY_KEY_PURGE: return EDIT_KEY_PURGE;
	default: ASSERT(false);
	}
}

/* --- the feed --- */

static void entry_add(struct buf *feed, struct feed_entry *e, const struct fields *fields, const void *before,
                      const void *after)
{
	CLEANUP(arena_release) struct arena arena = {0};
	CLEANUP(buf_release) struct buf changes = {0};
	if (fields)
		fields_changes_json(&changes, fields, before, after);
	e->changes = buf_view(&changes);
	struct str bytes = feed_entry_bytes(&arena, e);
	buf_str(feed, bytes);
	feed->failed |= changes.failed || !bytes.ptr;
}

bool account_feed(unsigned edits, const struct account_rows *rows, const struct registry_write *w,
                  const struct account_outcome *out, struct buf *feed)
{
	struct feed_entry user = {.kind = FEED_USER, .actor = w->actor, .id = out->user.id};
	struct feed_entry key = {.kind = FEED_KEY,
	                         .actor = w->actor,
	                         .id = out->key.id,
	                         .name = str_n((const char *)out->key.digest, KEY_DIGEST_BYTES)};
	struct feed_entry session = {.kind = FEED_SESSION,
	                             .actor = w->actor,
	                             .id = w->session.user,
	                             .name = str_n((const char *)w->session.id, SESSION_ID_BYTES)};
	if (edits & (EDIT_USER_INSERT | EDIT_USER_UPDATE))
		entry_add(feed, &user, &user_fields, edits & EDIT_USER_UPDATE ? rows->user : NULL,
		          &out->user);
	if (edits & (EDIT_KEY_INSERT | EDIT_KEY_REVOKE))
		entry_add(feed, &key, &key_fields, edits & EDIT_KEY_REVOKE ? rows->key : NULL, &out->key);
	if (edits & (EDIT_SESSION_INSERT | EDIT_SESSION_DELETE))
		entry_add(feed, &session, NULL, NULL, NULL);
	return !feed->failed;
}
