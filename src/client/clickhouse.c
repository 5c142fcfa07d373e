#include "client/clickhouse.h"

#include "client/clickhouse_url.h"
#include "client/pool.h"

#include <curl/curl.h>
#include <lz4.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	MESSAGE_BYTES_MAX = 240, /* of the server's message */
	EXCEPTION_BYTES_MAX = 16384,
	UPLOAD_BYTES = 512 << 10,
	FRAME_CHECKSUM_BYTES = 16,
	FRAME_HEADER_BYTES = 9,
	FRAME_LZ4 = 0x82,
	LZ4_ACCELERATION = 4, /* slightly larger, in half the time */
};

struct clickhouse {
	struct clickhouse_url url;
	struct curl_slist *headers; /* of every call */
	struct conn_pool *conns;
};

/* --- making one --- */

/* A NULL value adds nothing. */
static int header_add(struct curl_slist **list, const char *name, const char *value)
{
	CLEANUP(freep) char *line = NULL;
	if (!value)
		return 0;
	if (asprintf(&line, "%s:%s%s", name, value[0] ? " " : "", value) < 0) {
		line = NULL;
		return ERR_NOMEM;
	}
	struct curl_slist *longer = curl_slist_append(*list, line);
	explicit_bzero(line, strlen(line));
	*list = longer ? longer : *list;
	return longer ? 0 : ERR_NOMEM;
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_begin(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* curl connects when a call needs it, and again when the server has closed the connection. */
struct handle {
	struct pool_conn base;
	CURL *curl;
};

static int driver_connect(void *ctx, void **ret, struct err *e)
{
	(void)ctx;
	struct handle *h = calloc(1, sizeof(*h));
	if (!h || !(h->curl = curl_easy_init())) {
		free(h);
		return err_set(e, ERR_NOMEM, "memory ran out");
	}
	*ret = h;
	return 0;
}

static void driver_close(void *conn)
{
	struct handle *h = conn;
	curl_easy_cleanup(h->curl);
	free(h);
}

static const struct conn_driver driver = {.connect = driver_connect, .close = driver_close};

int clickhouse_new(struct str url, struct clickhouse **ret, struct err *e)
{
	pthread_once(&curl_once, curl_begin);
	struct clickhouse *c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, ERR_NOMEM, "memory ran out");
	int r = clickhouse_url_parse(url, &c->url, e);
	if (r == 0 && (header_add(&c->headers, "X-ClickHouse-User", c->url.user) < 0 ||
	               header_add(&c->headers, "X-ClickHouse-Key", c->url.password) < 0 ||
	               header_add(&c->headers, "Content-Type", "application/octet-stream") < 0 ||
	               header_add(&c->headers, "Expect", "") < 0)) /* it would cost a round trip */
		r = err_set(e, ERR_NOMEM, "memory ran out");
	if (r == 0)
		r = conn_pool_new(&driver, c, c->url.address, CLICKHOUSE_CALLS_MAX, &c->conns, e);
	if (r < 0)
		clickhouse_free(c);
	else
		*ret = c;
	return r;
}

void clickhouse_free(struct clickhouse *c)
{
	if (!c)
		return;
	conn_pool_free(c->conns); /* each call ends, as it has a time limit */
	for (struct curl_slist *h = c->headers; h; h = h->next)
		explicit_bzero(h->data, strlen(h->data));
	curl_slist_free_all(c->headers);
	clickhouse_url_release(&c->url);
	free(c);
}

const char *clickhouse_address(const struct clickhouse *c)
{
	return c->url.address;
}

const char *clickhouse_database(const struct clickhouse *c)
{
	return c->url.database;
}

void clickhouse_let_go(struct clickhouse *c)
{
	conn_pool_stop(c->conns);
}

/* --- a call --- */

struct calling {
	const struct clickhouse *client;
	const struct clickhouse_call *call;
	struct buf answer; /* the whole body */
	bool is_too_long;
	unsigned code; /* by the header; 0: none */
};

static size_t take_body(char *data, size_t size, size_t count, void *arg)
{
	struct calling *a = arg;
	size_t len = size * count;
	if (a->answer.len + len > CLICKHOUSE_ANSWER_BYTES_MAX) {
		a->is_too_long = true;
		return 0;
	}
	buf_append(&a->answer, data, len);
	return a->answer.failed ? 0 : len;
}

static size_t take_header(char *data, size_t size, size_t count, void *arg)
{
	struct calling *a = arg;
	struct str value = str_n(data, size * count);
	struct str name = str_cut(&value, ':');
	uint64_t code;
	while (value.len > 0 && (value.ptr[value.len - 1] == '\r' || value.ptr[value.len - 1] == '\n'))
		value.len--;
	if (str_eq_nocase(name, STR("X-ClickHouse-Exception-Code")) && value.ptr &&
	    str_u64(str_trim(value), &code) && code < 65536)
		a->code = (unsigned)code;
	return size * count;
}

/* Called at least once a second. Not 0: no further. */
static int watch(void *arg, curl_off_t down_max, curl_off_t down, curl_off_t up_max, curl_off_t up)
{
	const struct calling *a = arg;
	(void)down_max, (void)down, (void)up_max, (void)up;
	return conn_pool_is_stopped(a->client->conns);
}

static void add_escaped(CURL *handle, struct buf *out, const char *name, struct str value)
{
	char *escaped = curl_easy_escape(handle, value.ptr, (int)value.len);
	buf_printf(out, "&%s=%s", name, escaped ? escaped : "");
	out->failed |= !escaped;
	curl_free(escaped);
}

static void write_url(const struct clickhouse *c, CURL *handle, const struct clickhouse_call *call,
                      struct buf *out)
{
	buf_printf(out, "%s?wait_end_of_query=1", c->url.endpoint);
	if (!call->without_database)
		buf_printf(out, "&database=%s", c->url.database);
	if (call->settings && call->settings[0])
		buf_printf(out, "&%s", call->settings);
	if (call->query_id)
		add_escaped(handle, out, "query_id", str_of(call->query_id));
	if (call->rows) {
		add_escaped(handle, out, "query", call->sql);
		if (c->url.is_packed)
			buf_printf(out, "&decompress=1"
			                "&http_native_compression_disable_checksumming_on_decompress=1");
	}
	buf_char(out, '\0');
}

static void handle_prepare(const struct clickhouse *c, CURL *handle, const char *url, struct calling *a)
{
	const struct clickhouse_call *call = a->call;
	struct str body = call->rows ? buf_view(call->rows) : call->sql;
	curl_easy_reset(handle); /* its connections stay */
	curl_easy_setopt(handle, CURLOPT_URL, url);
	curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(handle, CURLOPT_PROXY, "");
	curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, (long)CLICKHOUSE_CONNECT_TIMEOUT_MS);
	curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
	curl_easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, (long)UPLOAD_BYTES);
	curl_easy_setopt(handle, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(handle, CURLOPT_POST, 1L);
	curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.len ? body.ptr : "");
	curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.len);
	curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(handle, CURLOPT_WRITEDATA, a);
	curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(handle, CURLOPT_HEADERDATA, a);
	curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, watch);
	curl_easy_setopt(handle, CURLOPT_XFERINFODATA, a);
}

/* --- what it came to --- */

/* "Code: 60, e.displayText() = ..." of old servers, "Code: 60. DB::Exception: ..." of new ones. 0: none. */
static unsigned code_in(struct str text)
{
	const char *at = text.len ? memmem(text.ptr, text.len, "Code: ", 6) : NULL;
	unsigned code = 0;
	if (!at)
		return 0;
	for (at += 6; at < text.ptr + text.len && *at >= '0' && *at <= '9' && code < 65536; at++)
		code = code * 10 + (unsigned)(*at - '0');
	return code;
}

#define SIGN_IN "; put the right user and password into the URL, and let that user come from here"
#define RIGHTS                                                                                        \
	"; the user needs the right to create, alter and drop tables in the database, to insert and " \
	"to select"

/* The server's codes that mean something to us. */
static const struct meaning {
	unsigned code;
	int error;
	const char *advice;
} meanings[] = {
    {60, ERR_NOT_FOUND, ""},                                     /* unknown table */
    {81, ERR_NOT_FOUND, ""},                                     /* unknown database */
    {115, ERR_UNAVAILABLE, "; is the server older than 18.16?"}, /* unknown setting */
    {164, ERR_INVALID, RIGHTS},                                  /* readonly */
    {192, ERR_INVALID, SIGN_IN},                                 /* unknown user */
    {193, ERR_INVALID, SIGN_IN},                                 /* wrong password */
    {194, ERR_INVALID, SIGN_IN},                                 /* password required */
    {195, ERR_INVALID, SIGN_IN},                                 /* address not allowed */
    {196, ERR_INVALID, SIGN_IN},                                 /* unknown address pattern */
    {216, ERR_BUSY, ""},                                         /* a query of this id runs */
    {252, ERR_LIMIT, ""},                                        /* too many parts */
    {291, ERR_INVALID, RIGHTS},                                  /* database access denied */
    {497, ERR_INVALID, RIGHTS},                                  /* access denied */
    {516, ERR_INVALID, SIGN_IN},                                 /* authentication failed */
    {0, ERR_UNAVAILABLE, ""},                                    /* any other */
};

/* The server said no. Its text is one line for us. */
static int refused(const struct clickhouse *c, const struct calling *a, long status, struct err *e)
{
	size_t skip = a->answer.len > EXCEPTION_BYTES_MAX ? a->answer.len - EXCEPTION_BYTES_MAX : 0;
	struct str text = a->answer.len ? str_n(a->answer.data + skip, a->answer.len - skip) : STR("");
	unsigned code = a->code ? a->code : code_in(text);
	const char *begin = text.len ? memmem(text.ptr, text.len, "Code: ", 6) : NULL;
	struct str said = begin ? str_n(begin, (size_t)(text.ptr + text.len - begin)) : text;
	said = str_cut(&said, '\n');
	said.len = MIN(said.len, MESSAGE_BYTES_MAX);
	const struct meaning *m = meanings;
	while (m->code != code && m->code != 0)
		m++;
	if (said.len == 0)
		return err_set(e, m->error, "ClickHouse at %s answers %ld and gives no reason",
		               c->url.address, status);
	return err_set(e, m->error, "ClickHouse at %s says: %.*s%s", c->url.address, STR_ARG(said),
	               m->advice);
}

static int not_reached(const struct clickhouse *c, const struct calling *a, CURLcode code, struct err *e)
{
	if (a->answer.failed || code == CURLE_OUT_OF_MEMORY)
		return err_set(e, ERR_NOMEM, "memory ran out for an answer of ClickHouse");
	if (a->is_too_long)
		return err_set(e, ERR_UNAVAILABLE, "an answer of ClickHouse at %s is longer than %d MB",
		               c->url.address, CLICKHOUSE_ANSWER_BYTES_MAX >> 20);
	if (code == CURLE_ABORTED_BY_CALLBACK)
		return err_set(e, ERR_UNAVAILABLE,
		               "ClickHouse at %s is not waited for any longer, as curt stops",
		               c->url.address);
	if (code == CURLE_OPERATION_TIMEDOUT)
		return err_set(e, ERR_UNAVAILABLE, "ClickHouse at %s did not answer in time", c->url.address);
	return err_set(e, ERR_UNAVAILABLE, "ClickHouse at %s cannot be reached (%s); is it running?",
	               c->url.address, curl_easy_strerror(code));
}

static int run(struct clickhouse *c, CURL *handle, struct calling *a, struct err *e)
{
	CLEANUP(buf_release) struct buf url = {0};
	write_url(c, handle, a->call, &url);
	if (url.failed)
		return err_set(e, ERR_NOMEM, "memory ran out");
	handle_prepare(c, handle, url.data, a);
	CURLcode code = curl_easy_perform(handle);
	if (code != CURLE_OK || a->answer.failed)
		return not_reached(c, a, code, e);
	long status = 0;
	curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
	bool is_whole = a->answer.len == 0 || (!a->call->rows && a->answer.data[a->answer.len - 1] == '\0');
	return status == 200 && a->code == 0 && is_whole ? 0 : refused(c, a, status, e);
}

int clickhouse_run(struct clickhouse *c, const struct clickhouse_call *call, struct buf *ret_answer,
                   struct err *e)
{
	struct calling a = {.client = c, .call = call};
	struct err own = {""};
	struct handle *h = conn_pool_take(c->conns, call->timeout_ms, &own);
	int r = h ? run(c, h->curl, &a, &own) : ERR_UNAVAILABLE;
	conn_pool_return(h);
	if (r == 0 && ret_answer) {
		buf_append(ret_answer, a.answer.data, a.answer.len);
		r = ret_answer->failed ? err_set(&own, ERR_NOMEM, "memory ran out") : 0;
	}
	buf_release(&a.answer);
	if (r < 0 && e)
		*e = own;
	if (r < 0 && !call->is_quiet)
		conn_pool_log(c->conns, own.text);
	return r;
}

/* --- rows --- */

void clickhouse_rows_begin(const struct clickhouse *c, struct clickhouse_rows *r)
{
	if (r->raw.failed || r->done.failed)
		clickhouse_rows_release(r); /* there may be memory again */
	r->raw.len = r->done.len = 0;
	r->is_packed = c->url.is_packed;
}

/* A frame: a checksum (not verified), the method, both lengths, the bytes. */
void clickhouse_rows_pack(struct clickhouse_rows *r)
{
	if (r->raw.len == 0 || r->raw.failed)
		return;
	int room = LZ4_compressBound((int)r->raw.len);
	char *out = buf_reserve(&r->done, FRAME_CHECKSUM_BYTES + FRAME_HEADER_BYTES + (size_t)room);
	if (!out)
		return;
	char *header = out + FRAME_CHECKSUM_BYTES;
	int packed = LZ4_compress_fast(r->raw.data, header + FRAME_HEADER_BYTES, (int)r->raw.len, room,
	                               LZ4_ACCELERATION);
	ASSERT(packed > 0); /* there is room for the worst */
	uint32_t bytes = FRAME_HEADER_BYTES + (uint32_t)packed, raw_bytes = (uint32_t)r->raw.len;
	memset(out, 0, FRAME_CHECKSUM_BYTES);
	header[0] = (char)FRAME_LZ4;
	memcpy(header + 1, &bytes, sizeof(bytes));
	memcpy(header + 5, &raw_bytes, sizeof(raw_bytes));
	r->done.len += FRAME_CHECKSUM_BYTES + bytes;
	r->raw.len = 0;
}

int clickhouse_rows_end(struct clickhouse_rows *r)
{
	if (r->is_packed) {
		clickhouse_rows_pack(r);
	} else {
		struct buf swap = r->done;
		r->done = r->raw;
		r->raw = swap;
	}
	return r->raw.failed || r->done.failed ? ERR_NOMEM : 0;
}

void clickhouse_rows_release(struct clickhouse_rows *r)
{
	buf_release(&r->raw);
	buf_release(&r->done);
}
