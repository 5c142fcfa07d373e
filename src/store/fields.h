/*
 * The fields of links, users and API keys: one row per field. The JSON of the API in both directions,
 * PATCH, OpenAPI, command line options, the columns of both databases and the change feed are generated
 * from these rows. Records stay plain structs (record.h), which hot code uses directly.
 *
 * To add a field: a member in its record, a row here, a column in each database's layout and, if it has its
 * own rule, a check in the API.
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "store/record.h"

enum field_type {
	FIELD_ID,      /* the row's number; 0 means a damaged row */
	FIELD_NUMBER,  /* 1, 2, 4 or 8 bytes; with `words`, only those values */
	FIELD_SECONDS, /* milliseconds in the record, seconds in JSON */
	FIELD_TIME,    /* int64_t, milliseconds; RFC 3339 in JSON */
	FIELD_BOOL,
	FIELD_ENUM, /* min is the first of `words`, and so on */
	FIELD_SET,  /* bit i is words[i]; an array in JSON */
	FIELD_USER, /* a user id; callers pass an email address or an id */
	FIELD_TEXT, /* struct str from here on; human-readable: no control characters */
	FIELD_STRING,
	FIELD_TAGS,    /* JSON array of strings */
	FIELD_SECRET,  /* write-only: JSON shows has_NAME */
	FIELD_DIGEST,  /* KEY_DIGEST_BYTES bytes; never shown */
	FIELD_VIRTUAL, /* not in the record: the API computes it; `schema` describes it */
};

enum {
	FIELD_CREATE = 1 << 0,   /* allowed in a create */
	FIELD_PATCH = 1 << 1,    /* allowed in a PATCH */
	FIELD_REQUIRED = 1 << 2, /* required in a create */
	FIELD_NULL = 1 << 3,  /* 0 or an absent string is null; callers may pass null unless it is required */
	FIELD_ADMIN = 1 << 4, /* only admins may set it */
	FIELD_HIDDEN = 1 << 5,        /* write-only under this name */
	FIELD_BLANK = 1 << 6,         /* an empty text means null */
	FIELD_STORE_COUNTED = 1 << 7, /* maintained by the store: a new row has 0, whatever the record says */
	FIELD_DEFAULT = 1 << 8,       /* callers may pass null for the default */
	FIELD_SETTABLE = FIELD_CREATE | FIELD_PATCH,
	FIELD_OPTIONAL = FIELD_SETTABLE | FIELD_NULL,
};

enum { FIELDS_MAX = 64 };

struct field {
	const char *name;   /* in JSON and OpenAPI; NULL: internal */
	const char *column; /* in both databases; NULL: not a column */
	enum field_type type;
	bool fixed;            /* never changed by an UPDATE */
	unsigned offset, size; /* in the record */
	unsigned bit;          /* in the mask of an UPDATE (LINK_URL, ...); 0: callers never change it */
	unsigned flags;
	/* bounds of a number, or of a text's length in bytes; a FIELD_STRING has its own check */
	uint64_t min, max;
	const char *const *words; /* permitted values, NULL-terminated */
	const char *option;       /* command line: "--expires TIME", or two flags: "--off|--on" */
	const char *none;         /* the command line's word for null */
	const char *null;         /* what null means, for the help */
	const char *help;         /* for --help and OpenAPI */
	const char *schema;       /* OpenAPI schema of a virtual field */
	const char *pattern; /* of a text in requests, for OpenAPI; a FIELD_TEXT has no controls anyway */
};

struct fields {
	const struct field *rows;
	size_t count;
};

extern const struct fields link_fields, user_fields, key_fields;

/* --- one field --- */

static inline bool field_is_str(const struct field *f)
{
	return f->type >= FIELD_TEXT && f->type <= FIELD_SECRET;
}

bool field_is_shown(const struct field *f);
void field_name_json(struct buf *b, const struct field *f); /* "title": or "has_password": */

static inline const struct str *field_str(const struct field *f, const void *record)
{
	return (const struct str *)((const char *)record + f->offset);
}

static inline struct str *field_str_in(const struct field *f, void *record)
{
	return (struct str *)((char *)record + f->offset);
}

/* Numbers, times, flags, enums. */
static inline int64_t field_int(const struct field *f, const void *record)
{
	const char *at = (const char *)record + f->offset;
	switch (f->size) {
	case 1: return *(const bool *)at;
	case 2: return *(const uint16_t *)(const void *)at;
	case 4: return *(const uint32_t *)(const void *)at;
	default: return *(const int64_t *)(const void *)at;
	}
}

/* False: the value is out of range, so the row is damaged. */
static inline bool field_set_int(const struct field *f, void *record, int64_t v)
{
	char *at = (char *)record + f->offset;
	switch (f->size) {
	case 1: *(bool *)at = v != 0; return true;
	case 2: *(uint16_t *)(void *)at = (uint16_t)v; return v >= 0 && v <= UINT16_MAX;
	case 4:
		*(uint32_t *)(void *)at = (uint32_t)v;
		return f->type != FIELD_ENUM || (v >= (int64_t)f->min && v <= (int64_t)f->max);
	default: *(int64_t *)(void *)at = v; return f->type != FIELD_ID || v > 0;
	}
}

const char *field_word(const struct field *f, uint64_t value); /* the name of an enum value; NULL: none */
bool field_value(const struct field *f, struct str word, uint64_t *ret);
void field_words_list(struct buf *b, const struct field *f); /* "viewer, editor or admin" */

/* --- whole records --- */

const struct field *fields_find(const struct fields *s, struct str name);

/* Copies the fields whose bit is in `bits`. Strings are not copied. */
void fields_copy(const struct fields *s, unsigned bits, const void *from, void *to);

/* Copies the strings into the arena: 0 or ERR_NOMEM. */
int fields_own(const struct fields *s, struct arena *arena, void *record);

size_t fields_bytes(const struct fields *s, const void *record); /* the total length of all strings */

/* Bit i is set if row i differs. */
uint64_t fields_differ(const struct fields *s, const void *a, const void *b);

/* --- JSON --- */

void field_json(struct buf *b, const struct field *f, const void *record); /* only the value */

/* Overrides the JSON of a virtual field or a user. False: use field_json. */
typedef bool field_json_fn(struct buf *b, const struct field *f, const void *record, const void *ctx);

/* The members of an object, without braces. `own` may be NULL if no field is virtual. */
void fields_json(struct buf *b, const struct fields *s, const void *record, field_json_fn *own,
                 const void *ctx);

/* {"title":["before","after"],"has_password":[false,true]}: the settable fields that differ. The side of a
 * NULL record is null. */
void fields_changes_json(struct buf *b, const struct fields *s, const void *before, const void *after);

/* --- SQL --- */

enum fields_which { FIELDS_ALL, FIELDS_BUT_ID, FIELDS_CHANGING /* not fixed */ };

static inline bool field_is_stored(const struct field *f, enum fields_which which)
{
	return f->column && (which != FIELDS_BUT_ID || f->type != FIELD_ID) &&
	       (which != FIELDS_CHANGING || !f->fixed);
}

/* The number that is written to the column. */
static inline int64_t field_stored_int(const struct field *f, const void *record)
{
	return f->flags & FIELD_STORE_COUNTED ? 0 : field_int(f, record);
}

/* Writes one pattern per stored field, chosen by its kind, separated by ", ". In a pattern, @ is the column
 * and # a number that counts up from `first`. Returns the next number. */
struct fields_pattern {
	const char *number, *flag, *text;
};
int fields_sql(struct buf *b, const struct fields *s, enum fields_which which,
               const struct fields_pattern *pattern, int first);

/* The rows. FIRST, FIXED and STORED(column, member, TYPE, ...) have a column; SHOWN(member, TYPE, ...) has
 * none. They are macros so that LINK_COLUMNS and the like are string literals. The order is that of JSON
 * and of the columns. */

/* As JSON: a backslash is two, and in C four. */
#define FIELD_URL_PATTERN                                                                            \
	"^[\\\\u0001-\\\\u0020]*[Hh][Tt][Tt][Pp][Ss]?:[/\\\\\\\\]*"                                  \
	"[^/\\\\\\\\?#\\\\s\\\\u0000-\\\\u001f\\\\u007f-\\\\u009f]"                                  \
	"[^\\\\u0000-\\\\u0008\\\\u000b\\\\u000c\\\\u000e-\\\\u001f\\\\u007f-\\\\u009f]*[\\\\u0001-" \
	"\\\\u0020]*$"
#define FIELD_EMAIL_PATTERN "^[^@\\\\u0000-\\\\u0020\\\\u007f]+@[^@\\\\u0000-\\\\u0020\\\\u007f]+$"

// clang-format off
#define LINK_FIELDS(FIRST, FIXED, STORED, SHOWN)                                                                       \
	FIRST(id, id, ID)                                                                                              \
	SHOWN(key, STRING, .name = "key")                                                                              \
	SHOWN(key, VIRTUAL, .name = "alias", .flags = FIELD_CREATE | FIELD_HIDDEN, .option = "--alias NAME",           \
	      .schema = "\"type\":[\"string\",\"null\"],\"pattern\":\"^[A-Za-z0-9_-]{1,255}$\"",                       \
	      .help = "The key, instead of a generated one; not a reserved word")                                      \
	SHOWN(key, VIRTUAL, .name = "domain", .schema = "\"type\":\"string\"")                                         \
	SHOWN(key, VIRTUAL, .name = "short_url", .schema = "\"type\":\"string\"")                                      \
	STORED(url, url, STRING, .name = "original_url", .bit = LINK_URL, .max = URL_BYTES_MAX,                        \
	       .pattern = FIELD_URL_PATTERN,                                                                           \
	       .flags = FIELD_SETTABLE | FIELD_REQUIRED, .option = "--url URL",                                           \
	       .help = "The target, http or https; stored canonical and percent-encoded")                              \
	FIXED(created_ms, created_ms, TIME, .name = "created_at")                                                      \
	STORED(updated_ms, updated_ms, TIME, .name = "updated_at")                                                     \
	STORED(not_before_ms, not_before_ms, TIME, .name = "not_before", .bit = LINK_NOT_BEFORE,                       \
	       .flags = FIELD_OPTIONAL, .option = "--not-before TIME", .none = "none", .null = "at once",              \
	       .help = "The start: RFC 3339, a date, or seconds since 1970")                                           \
	STORED(expires_ms, expires_ms, TIME, .name = "expires_at", .bit = LINK_EXPIRES, .flags = FIELD_OPTIONAL,       \
	       .option = "--expires TIME", .none = "never", .null = "no end",                                          \
	       .help = "The end: RFC 3339, a date, or seconds since 1970; two years after its start by default")       \
	STORED(expired_url, expired_url, STRING, .name = "expired_url", .bit = LINK_EXPIRED_URL,                       \
	       .max = URL_BYTES_MAX, .flags = FIELD_OPTIONAL, .option = "--expired-url URL", .none = "none",           \
	       .pattern = FIELD_URL_PATTERN,                                                                           \
	       .null = "404", .help = "Where an expired link redirects (302); it is then kept for two years")          \
	STORED(max_clicks, max_clicks, NUMBER, .name = "max_clicks", .bit = LINK_MAX_CLICKS, .min = 1,                 \
	       .max = 1ULL << 53, .flags = FIELD_OPTIONAL, .option = "--max-clicks N", .none = "none",                 \
	       .null = "no limit", .help = "The number of redirects after which it expires")                           \
	FIXED(clicks, clicks, NUMBER, .name = "clicks", .flags = FIELD_STORE_COUNTED,                                        \
	      .help = "All redirects so far; the newest are added after a moment")                                     \
	STORED(redirect_status, redirect_status, NUMBER, .name = "redirect_status", .bit = LINK_STATUS,                \
	       .words = redirect_statuses, .flags = FIELD_SETTABLE | FIELD_DEFAULT, .option = "--status CODE",                            \
	       .help = "301, 302 (the default), 307 or 308")                                                           \
	STORED(enabled, enabled, BOOL, .name = "enabled", .bit = LINK_ENABLED, .flags = FIELD_SETTABLE | FIELD_DEFAULT,                   \
	       .option = "--disable|--enable", .help = "A disabled link answers like a missing one")                   \
	STORED(private, is_private, ENUM, .name = "visibility", .bit = LINK_PRIVATE, .max = 1,                         \
	       .words = visibilities, .flags = FIELD_SETTABLE | FIELD_DEFAULT, .option = "--public|--private",                            \
	       .help = "Only its owner, admins and permitted users can follow a private link")                         \
	STORED(password, password, SECRET, .name = "password", .bit = LINK_PASSWORD, .min = 1, .max = 1024,            \
	       .flags = FIELD_OPTIONAL, .option = "--no-password|--password", .null = "none",                          \
	       .help = "A password that visitors must enter")                                                         \
	SHOWN(key, VIRTUAL, .name = "forward_query", .schema = "\"const\":false")                                      \
	SHOWN(key, VIRTUAL, .name = "rules", .schema = "\"type\":\"array\",\"maxItems\":0")                            \
	STORED(title, title, TEXT, .name = "title", .bit = LINK_TITLE, .max = 512, .flags = FIELD_OPTIONAL,            \
	       .option = "--title TEXT", .help = "A title for lists")                                                  \
	STORED(note, note, TEXT, .name = "note", .bit = LINK_NOTE, .max = 4096, .flags = FIELD_OPTIONAL,               \
	       .option = "--note TEXT", .help = "A note for its managers")                                             \
	STORED(tags, tags, TAGS, .name = "tags", .bit = LINK_TAGS, .flags = FIELD_SETTABLE | FIELD_DEFAULT,                               \
	       .option = "--tag WORD", .help = "A tag of 1 to 64 bytes; a link has at most 32")                        \
	STORED(external_id, external_id, TEXT, .name = "external_id", .bit = LINK_EXTERNAL_ID, .min = 1, .max = 256,   \
	       .flags = FIELD_OPTIONAL, .option = "--external-id TEXT", .none = "none", .null = "none",                \
	       .help = "Its id in another system, 1 to 256 bytes")                                                     \
	STORED(owner, owner, USER, .name = "owner", .bit = LINK_OWNER, .flags = FIELD_OPTIONAL | FIELD_ADMIN,          \
	       .option = "--owner USER", .help = "The owner's email address or id; answers show user_name, "       \
	       "or the owner's email address or name, or 'local' for a link made without an account")                  \
	STORED(api_key, api_key, NUMBER, .bit = LINK_OWNER)                                                            \
	FIXED(user_name, user_name, TEXT, .name = "user_name", .max = 128, .help = "Shown as the owner",               \
	      .flags = FIELD_CREATE | FIELD_NULL | FIELD_HIDDEN)

#define USER_FIELDS(FIRST, FIXED, STORED, SHOWN)                                                                       \
	FIRST(id, id, ID, .name = "id")                                                                                \
	STORED(email, email, STRING, .name = "email", .bit = USER_EMAIL, .min = 3, .max = USER_EMAIL_BYTES_MAX,        \
	       .pattern = FIELD_EMAIL_PATTERN,                                                                         \
	       .flags = FIELD_OPTIONAL | FIELD_REQUIRED | FIELD_ADMIN,                                                 \
	       .help = "Stored in lower case; null for the user that an API key without a user gets")                  \
	STORED(first_name, first_name, TEXT, .name = "first_name", .bit = USER_FIRST_NAME, .max = 128,                 \
	       .flags = FIELD_OPTIONAL | FIELD_BLANK, .option = "--first-name TEXT")                                   \
	STORED(middle_name, middle_name, TEXT, .name = "middle_name", .bit = USER_MIDDLE_NAME, .max = 128,             \
	       .flags = FIELD_OPTIONAL | FIELD_BLANK, .option = "--middle-name TEXT")                                  \
	STORED(last_name, last_name, TEXT, .name = "last_name", .bit = USER_LAST_NAME, .max = 128,                     \
	       .flags = FIELD_OPTIONAL | FIELD_BLANK, .option = "--last-name TEXT")                                    \
	STORED(role, role, ENUM, .name = "role", .bit = USER_ROLE, .min = ROLE_VIEWER, .max = ROLE_ADMIN,              \
	       .words = user_roles, .flags = FIELD_SETTABLE | FIELD_ADMIN, .option = "--role ROLE",                       \
	       .help = "viewer, editor (the default) or admin")                                                        \
	STORED(enabled, enabled, BOOL, .name = "enabled", .bit = USER_ENABLED, .flags = FIELD_PATCH | FIELD_ADMIN,     \
	       .help = "The API keys and sessions of a disabled user are refused")                                     \
	STORED(password, password, SECRET, .name = "password", .bit = USER_PASSWORD, .min = 8, .max = 1024,            \
	       .flags = FIELD_SETTABLE | FIELD_HIDDEN,                                                                    \
	       .help = "8 to 1024 bytes; stored as argon2id. A user without one cannot sign in")                       \
	SHOWN(id, VIRTUAL, .name = "current_password", .flags = FIELD_PATCH | FIELD_HIDDEN,                            \
	      .schema = "\"type\":\"string\",\"maxLength\":1024,\"writeOnly\":true",                                   \
	      .help = "Required when a signed-in user changes their own password")                                     \
	STORED(generation, generation, NUMBER)                                                                         \
	FIXED(created_ms, created_ms, TIME, .name = "created_at")                                                      \
	STORED(updated_ms, updated_ms, TIME, .name = "updated_at")

#define KEY_FIELDS(FIRST, FIXED, STORED, SHOWN)                                                                        \
	FIRST(id, id, ID, .name = "id")                                                                                \
	FIXED(name, name, TEXT, .name = "name", .min = 1, .max = 64,                                                   \
	      .flags = FIELD_CREATE | FIELD_REQUIRED | FIELD_NULL, .help = "Its purpose, 1 to 64 bytes")               \
	FIXED(digest, digest, DIGEST)                                                                                  \
	SHOWN(rights, VIRTUAL, .name = "admin", .flags = FIELD_CREATE, .option = "--admin", .help = "All scopes",      \
	      .schema = "\"type\":\"boolean\"")                                                                        \
	FIXED(rights, rights, SET, .name = "scopes", .words = right_names, .flags = FIELD_CREATE,                      \
	      .option = "--scopes LIST",                                                                               \
	      .help = "What it may do: read, stats, create, delete, admin; all but admin by default")                  \
	FIXED(user_id, user, USER, .name = "user", .flags = FIELD_CREATE, .option = "--user USER",                     \
	      .help = "Its user, an email address or id; only admins may choose. By default the caller, or a new user") \
	FIXED(created_ms, created_ms, TIME, .name = "created_at")                                                      \
	FIXED(expires_ms, expires_ms, TIME, .name = "expires_at", .flags = FIELD_CREATE | FIELD_NULL,                  \
	      .option = "--expires TIME", .none = "never", .null = "no end (the default)",                             \
	      .help = "The end, in the future: RFC 3339, a date, or seconds since 1970")                               \
	FIXED(revoked_ms, revoked_ms, TIME, .name = "revoked_at", .flags = FIELD_NULL)                                 \
	FIXED(used_ms, used_ms, TIME, .name = "last_used_at", .flags = FIELD_NULL,                                     \
	      .help = "Exact to about a second; stored once a minute")                                                 \
	FIXED(creates_max, creates_max, NUMBER, .name = "creates_limit", .max = UINT32_MAX,                            \
	      .flags = FIELD_CREATE | FIELD_ADMIN, .option = "--creates N",                                            \
	      .help = "Links it may create in a period, instead of its user's limit; 0: the server's default")         \
	FIXED(redirects_max, redirects_max, NUMBER, .name = "redirects_limit", .max = UINT32_MAX,                      \
	      .flags = FIELD_CREATE | FIELD_ADMIN, .option = "--redirects N",                                          \
	      .help = "Redirects of its links in a period, likewise")                                                  \
	FIXED(period_ms, period_ms, SECONDS, .name = "limit_period_s", .max = 31ULL * 24 * 3600,                       \
	      .flags = FIELD_CREATE | FIELD_ADMIN, .option = "--period SECONDS", .help = "The period of both limits, likewise")
// clang-format on
