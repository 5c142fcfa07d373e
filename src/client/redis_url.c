#include "client/redis_url.h"

#include "client/redis.h"

enum { DB_MAX = 9999, TEXT_BYTES_MAX = 512 };

/* A percent-encoded text as it was meant, in the arena. */
static int decode(struct arena *arena, struct str s, struct str *ret, struct err *e)
{
	if (s.len > TEXT_BYTES_MAX)
		return err_set(e, ERR_INVALID, "the user or password of a Redis URL is longer than %d bytes",
		               TEXT_BYTES_MAX);
	char *out = arena_alloc(arena, s.len + 1);
	if (!out)
		return err_set(e, ERR_NOMEM, "memory ran out");
	size_t len = 0;
	if (!str_percent_decode(s, out, &len))
		return err_set(e, ERR_INVALID,
		               "a %% in the user or password of a Redis URL stands before two hexadecimal "
		               "digits other than 00: write a plain %% as %%25");
	out[len] = '\0';
	*ret = str_n(out, len);
	return 0;
}

/* [user:]password, or :password as other programs write it. */
static int parse_credentials(struct str s, struct redis_url *u, struct err *e)
{
	struct str password = s;
	struct str user = str_cut(&password, ':');
	if (!password.ptr) {
		password = user;
		user = STR_NULL;
	}
	if (password.len == 0)
		return err_set(e, ERR_INVALID, "a Redis URL has an @ and no password before it");
	if (user.len > 0) {
		int r = decode(&u->arena, user, &u->user, e);
		if (r)
			return r;
	}
	return decode(&u->arena, password, &u->password, e);
}

static bool is_name(struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = ascii_lower(s.ptr[i]);
		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '.' && c != '-' && c != '_')
			return false;
	}
	return s.len > 0 && s.len <= 255;
}

static bool is_v6(struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (ascii_hex(s.ptr[i]) < 0 && s.ptr[i] != ':' && s.ptr[i] != '.')
			return false;
	}
	return s.len > 0 && s.len < 46;
}

/* Cuts "[v6]" or "host" from the front; what is left is empty or begins with the colon of the port. */
static bool cut_host(struct str *s, struct str *ret)
{
	if (s->len > 0 && s->ptr[0] == '[') {
		struct str rest = str_n(s->ptr + 1, s->len - 1);
		*ret = str_cut(&rest, ']');
		*s = rest;
		return rest.ptr && is_v6(*ret);
	}
	const char *colon = s->len ? memchr(s->ptr, ':', s->len) : NULL;
	size_t len = colon ? (size_t)(colon - s->ptr) : s->len;
	*ret = str_n(s->ptr, len);
	*s = str_n(s->ptr + len, s->len - len);
	return is_name(*ret);
}

static int parse_host(struct str s, struct redis_url *u, struct err *e)
{
	struct str host;
	uint64_t port = u->is_sentinel ? REDIS_SENTINEL_PORT : REDIS_PORT;
	if (u->host_count == REDIS_HOSTS_MAX)
		return err_set(e, ERR_INVALID, "a Redis URL names more than %d sentinels", REDIS_HOSTS_MAX);
	if (!cut_host(&s, &host))
		return err_set(e, ERR_INVALID,
		               "a Redis URL has no valid host: it is a name or an address, behind the last "
		               "@ if there is a password; write @, / and : in a password as %%40, %%2F and "
		               "%%3A");
	if (s.len > 0 &&
	    (s.ptr[0] != ':' || !str_u64(str_n(s.ptr + 1, s.len - 1), &port) || port < 1 || port > 65535))
		return err_set(e, ERR_INVALID, "the port of a Redis URL is a number from 1 to 65535");
	char *copy = (char *)arena_str(&u->arena, host).ptr;
	if (!copy)
		return err_set(e, ERR_NOMEM, "memory ran out");
	u->hosts[u->host_count++] = (struct redis_host){.host = copy, .port = (uint16_t)port};
	return 0;
}

static int parse_path(struct str path, struct redis_url *u, struct err *e)
{
	uint64_t db = 0;
	if (u->is_sentinel) {
		struct str primary = str_cut(&path, '/');
		if (!is_name(primary))
			return err_set(e, ERR_INVALID,
			               "a redis+sentinel URL ends with a / and the primary's name, which has "
			               "only letters, digits, - _ and dot");
		u->primary = arena_str(&u->arena, primary);
	}
	if (path.len > 0 && (!str_u64(path, &db) || db > DB_MAX))
		return err_set(e, ERR_INVALID, "the database at the end of a Redis URL is a number up to %d",
		               DB_MAX);
	u->db = arena_printf(&u->arena, "%u", (unsigned)db);
	return 0;
}

/* The same for everybody, in whichever order the sentinels are listed. Most sets of sentinels call their
 * primary by the same name: it alone would not tell two apart. */
static int make_name(struct redis_url *u, struct err *e)
{
	const struct redis_host *first = &u->hosts[0];
	for (size_t i = 1; i < u->host_count; i++) {
		int order = strcmp(u->hosts[i].host, first->host);
		if (order < 0 || (order == 0 && u->hosts[i].port < first->port))
			first = &u->hosts[i];
	}
	ASSERT(first->host);
	bool v6 = strchr(first->host, ':') != NULL;
	struct str primary = u->is_sentinel ? u->primary : STR("");
	if (primary.ptr && u->db.ptr)
		u->name = arena_printf(&u->arena, v6 ? "%.*s%s[%s]:%u/%s" : "%.*s%s%s:%u/%s",
		                       STR_ARG(primary), u->is_sentinel ? "@" : "", first->host, first->port,
		                       u->db.ptr);
	return u->name.ptr ? 0 : err_set(e, ERR_NOMEM, "memory ran out");
}

static bool cut_scheme(struct str *url, struct str scheme)
{
	if (!str_starts(*url, scheme))
		return false;
	*url = str_n(url->ptr + scheme.len, url->len - scheme.len);
	return true;
}

static int parse(struct str url, struct redis_url *u, struct err *e)
{
	if (cut_scheme(&url, STR("redis+sentinel://")))
		u->is_sentinel = true;
	else if (!cut_scheme(&url, STR("redis://")))
		return err_set(e, ERR_INVALID, "a Redis URL begins with redis:// or redis+sentinel://");
	struct str path = url;
	struct str hosts = str_cut(&path, '/');
	const char *at = hosts.len ? memrchr(hosts.ptr, '@', hosts.len) : NULL;
	int r = 0;
	if (at) {
		size_t len = (size_t)(at - hosts.ptr);
		r = parse_credentials(str_n(hosts.ptr, len), u, e);
		hosts = str_n(at + 1, hosts.len - len - 1);
	}
	if (r == 0 && !u->is_sentinel)
		r = parse_host(hosts, u, e);
	while (r == 0 && u->is_sentinel && hosts.ptr)
		r = parse_host(str_trim(str_cut(&hosts, ',')), u, e);
	if (r == 0)
		r = parse_path(path, u, e);
	return r ? r : make_name(u, e);
}

int redis_url_parse(struct str url, struct redis_url *ret, struct err *e)
{
	struct redis_url u = {0};
	int r = parse(url, &u, e);
	if (r)
		redis_url_release(&u);
	else
		*ret = u;
	return r;
}

void redis_url_release(struct redis_url *u)
{
	arena_release(&u->arena);
}

int redis_urls_cut(struct str urls, struct arena *arena, struct str **ret, size_t *ret_count, struct err *e)
{
	size_t commas = 0, count = 0;
	for (size_t i = 0; i < urls.len; i++)
		commas += urls.ptr[i] == ',';
	if (str_trim(urls).len == 0)
		return err_set(e, ERR_INVALID,
		               "there is no Redis URL: give one such as redis://127.0.0.1:6379");
	struct str *list = arena_alloc(arena, (commas + 1) * sizeof(*list));
	if (!list)
		return err_set(e, ERR_NOMEM, "memory ran out");
	while (urls.ptr)
		list[count++] = str_cut_url(&urls);
	*ret = list;
	*ret_count = count;
	return 0;
}
