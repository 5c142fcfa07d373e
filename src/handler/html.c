#include "handler/html.h"

const struct http_field html_policy = {
    STR("Content-Security-Policy"),
    STR("default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors "
        "'none'"),
};

const struct http_field html_form_policy = {
    STR("Content-Security-Policy"),
    STR("default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self' http: https:; "
        "frame-ancestors 'none'"),
};

void html_text(struct buf *b, struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		switch (s.ptr[i]) {
		case '&': buf_str(b, STR("&amp;")); break;
		case '<': buf_str(b, STR("&lt;")); break;
		case '>': buf_str(b, STR("&gt;")); break;
		case '"': buf_str(b, STR("&quot;")); break;
		case '\'': buf_str(b, STR("&#39;")); break;
		default: buf_char(b, s.ptr[i]); break;
		}
	}
}

void html_page_begin(struct buf *b, struct str title)
{
	buf_str(b, STR("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
	               "<meta name=\"viewport\" content=\"width=device-width\">"
	               "<meta name=\"robots\" content=\"noindex\"><title>"));
	html_text(b, title);
	buf_str(
	    b,
	    STR("</title><style>"
	        ":root{color-scheme:light dark}"
	        "body{font:17px/1.55 system-ui,sans-serif;max-width:42rem;margin:14vh auto "
	        "4rem;padding:0 1.5rem}"
	        "h1{font-size:1.6rem;letter-spacing:-.01em;margin:0 0 .6rem}"
	        "code,pre{font:.88em/1.6 ui-monospace,monospace}"
	        "pre{padding:1rem 1.2rem;border-radius:.6rem;background:#8881;overflow-x:auto}"
	        "a{color:#2563eb;overflow-wrap:anywhere}"
	        "@media(prefers-color-scheme:dark){a{color:#7aa2ff}}"
	        ".quiet{opacity:.65;font-size:.92em}"
	        "input,button{font:inherit;padding:.45rem .7rem;border-radius:.45rem;border:1px solid #8886;"
	        "background:transparent;color:inherit;margin:.2rem 0}"
	        "button{background:#2563eb;border-color:#2563eb;color:#fff;cursor:pointer}"
	        "label{display:block;margin:.5rem 0}"
	        "</style></head><body><main>"));
}

void html_page_end(struct buf *b)
{
	buf_str(b, STR("</main></body></html>\n"));
}
