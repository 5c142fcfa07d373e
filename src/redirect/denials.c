#include "redirect/denials.h"

#include "handler/caller.h"
#include "handler/guess_limits.h"
#include "handler/html.h"
#include "handler/problem.h"
#include "handler/reply.h"

void deny_no_link(struct http_conn *c, bool as_page)
{
	const struct problem p = {.status = 404, .code = "no-such-link", .as_page = as_page};
	problem_reply(
	    c, &p,
	    "There is no link here. Check the address for typing errors; the link may also have ended.");
}

void deny_no_key(struct api_worker *w, struct http_conn *c, const struct net_addr *client, bool as_page)
{
	if (guess_miss(w, c, client, as_page))
		deny_no_link(c, as_page);
}

/* A form that posts to the page's own address, which is the link. Works without scripts. */
static void password_page(struct http_conn *c, const char *why)
{
	struct buf CLEANUP(buf_release) page = {0};
	html_page_begin(&page, STR("A password, please"));
	buf_printf(&page,
	           "<h1>A password, please</h1><p>%s</p><form method=\"post\"><p><input type=\"password\" "
	           "name=\"password\" aria-label=\"Password\" autocomplete=\"off\" required autofocus> "
	           "<button>Follow the link</button></p></form>",
	           why);
	html_page_end(&page);
	api_reply_page(c, 401, &page, html_form_policy);
}

static void ask_for_password(struct http_conn *c, bool as_page)
{
	if (as_page)
		password_page(c, "This link is for those who know its password.");
	else
		problem_say(c, 401, "password-required",
		            "This link asks for a password: POST {\"password\": \"...\"} to it.");
}

void deny_wrong_password(struct http_conn *c, bool as_page)
{
	if (as_page)
		password_page(c, "That was not the password. Try again.");
	else
		problem_say(c, 401, "wrong-password", "That is not this link's password.");
}

static void ask_who(struct http_conn *c, struct str key, bool as_page)
{
	const struct problem p = {
	    .status = 401, .code = "sign-in-required", .fields = &auth_challenge, .field_count = 1};
	char next[KEY_BYTES_MAX + 2] = "/";
	if (!as_page) {
		problem_reply(c, &p,
		              "This link is private: sign in (POST /api/v1/session), or send an API key.");
		return;
	}
	memcpy(next + 1, key.ptr, key.len);
	reply_sign_in_page(c, 401, "This link is private. Sign in to follow it.", str_n(next, key.len + 1));
}

void deny_closed(struct http_conn *c, enum link_verdict verdict, struct str key, bool as_page)
{
	const struct problem forbidden = {.status = 403, .code = "not-permitted", .as_page = as_page};
	if (verdict == LINK_SIGN_IN)
		ask_who(c, key, as_page);
	else if (verdict == LINK_LOCKED)
		ask_for_password(c, as_page);
	else
		problem_reply(c, &forbidden,
		              "This link is private, and you are not among those who may follow it. Ask its "
		              "owner to add you.");
}
