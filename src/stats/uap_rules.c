/*
 * The parser of uap-core's rules, which are YAML and linked into the program: a mapping of lists to sequences
 * of mappings of fields to texts.
 */
#include "stats/uap_rules.h"

#include <yaml.h>

__asm__(".section .rodata\n"
        ".balign 16\n"
        "uap_rules_begin:\n"
        ".incbin \"" UAP_RULES "\"\n"
        "uap_rules_end:\n"
        ".byte 0\n"
        ".previous\n");
extern const unsigned char uap_rules_begin[] __attribute__((visibility("hidden")));
extern const unsigned char uap_rules_end[] __attribute__((visibility("hidden")));

enum { DEPTH_LISTS = 1, DEPTH_FIELDS = 3 };

struct file_reader {
	struct arena *mem;
	struct buf *rules; /* of struct agent_rule */
	unsigned depth;
	enum agent_list list; /* AGENT_LISTS: not used here */
	struct agent_rule rule;
	struct str *field; /* where the next scalar goes; NULL when it is a field's name */
	struct str flag;
	struct str unused;
};

static enum agent_list list_named(struct str name)
{
	if (str_eq(name, STR("user_agent_parsers")))
		return AGENT_LIST_BROWSER;
	if (str_eq(name, STR("os_parsers")))
		return AGENT_LIST_OS;
	return str_eq(name, STR("device_parsers")) ? AGENT_LIST_DEVICE : AGENT_LISTS;
}

static struct str *field_named(struct file_reader *f, struct str name)
{
	if (str_eq(name, STR("regex")))
		return &f->rule.regex;
	if (str_eq(name, STR("regex_flag")))
		return &f->flag;
	if (str_eq(name, STR("family_replacement")) || str_eq(name, STR("os_replacement")) ||
	    str_eq(name, STR("device_replacement")))
		return &f->rule.value;
	return str_eq(name, STR("brand_replacement")) ? &f->rule.brand : &f->unused;
}

static int file_scalar(struct file_reader *f, struct str text)
{
	if (f->depth == DEPTH_LISTS) {
		f->list = list_named(text);
	} else if (f->depth == DEPTH_FIELDS && !f->field) {
		f->field = field_named(f, text);
	} else if (f->depth == DEPTH_FIELDS) {
		*f->field = arena_str(f->mem, text);
		if (!f->field->ptr)
			return ERR_NOMEM;
		f->field = NULL;
	}
	return 0;
}

static int file_event(struct file_reader *f, const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return file_scalar(f,
		                   str_n((const char *)event->data.scalar.value, event->data.scalar.length));
	case YAML_MAPPING_START_EVENT:
	case YAML_SEQUENCE_START_EVENT:
		f->depth++;
		f->rule = (struct agent_rule){0};
		f->flag = STR_NULL;
		f->field = NULL;
		return f->depth > DEPTH_FIELDS ? ERR_CORRUPT : 0;
	case YAML_MAPPING_END_EVENT:
		if (f->depth-- != DEPTH_FIELDS || f->list == AGENT_LISTS || !f->rule.regex.ptr)
			return 0;
		f->rule.list = f->list;
		f->rule.ignore_case = str_eq(f->flag, STR("i"));
		buf_append(f->rules, &f->rule, sizeof(f->rule));
		return f->rules->failed ? ERR_NOMEM : 0;
	case YAML_SEQUENCE_END_EVENT: f->depth--; return 0;
	default: return 0;
	}
}

int uap_rules_read(struct arena *mem, struct buf *rules)
{
	struct file_reader f = {.mem = mem, .rules = rules, .list = AGENT_LISTS};
	yaml_parser_t parser;
	if (!yaml_parser_initialize(&parser))
		return ERR_NOMEM;
	yaml_parser_set_input_string(&parser, uap_rules_begin, (size_t)(uap_rules_end - uap_rules_begin));
	int r = 0;
	bool ended = false;
	while (r == 0 && !ended) {
		yaml_event_t event;
		if (yaml_parser_parse(&parser, &event)) {
			ended = event.type == YAML_STREAM_END_EVENT;
			r = file_event(&f, &event);
			yaml_event_delete(&event);
		} else {
			r = parser.error == YAML_MEMORY_ERROR ? ERR_NOMEM : ERR_CORRUPT;
		}
	}
	yaml_parser_delete(&parser);
	return r;
}
