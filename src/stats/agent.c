/*
 * A user agent is looked up by its text in a cache of results. If it is missing, it is matched against five
 * lists of rules at once. The three of uap-core give the browser, the system and the device. Two lists below
 * find bots, and form factors that neither the system nor the device reveals.
 *
 * Names. A rule has a fixed name, or takes it from the user agent ("$1"). Most of the latter can only be one
 * of a few names in the rule. The others ("any word that ends in bot") are chosen by clients: they must be
 * short and printable, and have a limit of their own, so that made-up names cannot displace real ones.
 */
#include "stats/agent.h"

#include "base/hash.h"
#include "base/utf8.h"
#include "stats/uap_rules.h"

#include <sodium.h>
#include <stdlib.h>

enum {
	AGENT_BYTES_MAX = 512,
	NAME_BYTES_MAX = 64,
	NAMES_MAX = 8192,
	NAMES_OPEN_MAX = 4096, /* of these, chosen by clients */
	NAME_SLOTS = 2 * NAMES_MAX,
};

#define OTHER STR("Other")

/* ---- our own rules ---- */

#define RULE(in, expression, answer)                                                              \
	{                                                                                         \
		.list = (in), .ignore_case = true, .regex = STR(expression), .value = STR(answer) \
	}
#define BOT(reason, expression)  RULE(AGENT_LIST_BOT, expression, reason)
#define FORM(device, expression) RULE(AGENT_LIST_FORM, expression, device)

/* The first match of each list counts. Some words must match as a whole: a Cubot is a phone. */
static const struct agent_rule own_rules[] = {
    BOT("preview", "facebookexternalhit|\\bFacebot\\b|facebookcatalog|Slackbot|Slack-ImgProxy|Twitterbot"),
    BOT("preview",
        "^WhatsApp/|TelegramBot|Discordbot|LinkedInBot|SkypeUriPreview|MicrosoftPreview|BingPreview"),
    BOT("preview",
        "Pinterest(?:bot|/0\\.)|redditbot|\\bvkShare\\b|\\bMastodon/|Iframely|Embedly|kakaotalk-scrap"),
    BOT("preview", "Google Web Preview|Snap URL Preview|Bluesky Cardyb|XING-contenttabreceiver|\\bSynapse/"),
    BOT("preview", "GoogleImageProxy|YahooMailProxy"),

    BOT("monitor",
        "UptimeRobot|Pingdom|StatusCake|Site24x7|NewRelicPinger|Datadog|Uptime-Kuma|Better ?Uptime"),
    BOT("monitor",
        "Better Stack|HetrixTools|\\bCheckly\\b|updown\\.io|Freshping|\\bcheck_http/|\\bZabbix\\b"),
    BOT("monitor",
        "Blackbox[ -]Exporter|^Prometheus/|kube-probe|ELB-HealthChecker|GoogleHC/|Consul Health Check"),
    BOT("monitor",
        "Cloudflare-Healthchecks|Route53-Health-Check|\\bMonit/|PRTG Network Monitor|\\bmonitis\\b"),
    BOT("monitor", "Rackspace Monitoring|YottaaMonitor|HttpMonitor|Catchpoint|GomezAgent|W3C_Validator"),
    BOT("monitor", "Chrome-Lighthouse|GTmetrix|\\bPTST/|PageSpeed"),

    BOT("headless",
        "Headless|PhantomJS|SlimerJS|CasperJS|\\b(?:Puppeteer|Playwright|Selenium|HtmlUnit|jsdom)\\b"),

    BOT("feed", "Feedly|Feedbin|FeedFetcher|FeedBurner|NewsBlur|Inoreader|Tiny Tiny RSS|SimplePie|MagpieRSS"),
    BOT("feed",
        "FreshRSS|Miniflux|feedparser|\\bSimpleRSS\\b|NewsGator|Netvibes|Bloglovin|theoldreader\\.com"),

    BOT("scanner",
        "masscan|\\bzgrab|Nmap Scripting|sqlmap|\\bNikto\\b|\\bNuclei\\b|WPScan|\\bNessus\\b|OpenVAS"),
    BOT("scanner",
        "gobuster|dirbuster|CensysInspect|Expanse, a Palo Alto|internet-measurement|WhatWeb|TLSProber"),

    BOT("http-library",
        "\\b(?:lib)?curl(?:/|-agent|$)|PycURL|\\bWget|\\baria2|\\bAxel/|\\blftp/|fetch libfetch"),
    BOT("http-library",
        "\\bpython-[a-z]|^Python/|\\baiohttp\\b|\\burllib3/|urlgrabber|^ureq|reqwest|^hyper/"),
    BOT("http-library",
        "Go-http-client|go-resty|^Java[/\\d]|Java-http-client|Google-HTTP-Java|HTTPClient|okhttp"),
    BOT("http-library",
        "Apache-CXF|\\bJersey/|ReactorNetty|akka-http|scalaj-http|^AHC/|unirest|Vert\\.x-|\\bJNLP/"),
    BOT("http-library",
        "libwww-perl|LWP::|WWW-Mechanize|HTTP::Tiny|GuzzleHttp|^PHP/|^PECL::|Symfony HttpClient"),
    BOT("http-library",
        "axios/|node-fetch|node-superagent|^node$|\\bundici\\b|^got[ /(]|^Deno/|^Bun/|PostmanRuntime"),
    BOT("http-library",
        "^insomnia/|HTTPie|^Ruby$|\\bFaraday\\b|rest-client/|http\\.rb/|Typhoeus|lua-resty-http"),
    BOT("http-library",
        "RestSharp|WinHTTP|WindowsPowerShell|Microsoft-CryptoAPI|^Dart/|APT-HTTP|HTTrack|WebCopier"),
    BOT("http-library", "WebZIP|aws-sdk-|aws-cli/|\\bminio-|^s3fs/|^rclone/"),

    BOT("crawler",
        "(?<!cu)bots?\\b|\\bbot[-_/]|crawl(?:er|ers|ing)?\\b|spider\\b|scraper\\b|archiver\\b|indexer\\b"),
    BOT("crawler",
        "\\+ ?https?://|Mediapartners-Google|AppEngine-Google|APIs-Google|GoogleOther|Yahoo! Slurp"),
    BOT("crawler",
        "Google-(?:InspectionTool|Extended|Safety|Read-Aloud|Site-Verification|Adwords|Structured)"),
    BOT("crawler",
        "ChatGPT-User|Perplexity-User|Claude-User|anthropic-ai|cohere-ai|meta-external|\\bYandex[A-Z]\\w+/"),
    BOT("crawler", "\\bNutch|heritrix|archive\\.org|Scrapy|Screaming Frog"),

    FORM("TV", "Smart-?TV|Smart TV|Google ?TV|Android ?TV|Apple ?TV|HbbTV|NetCast|NETTV|InettvBrowser|Web0S"),
    FORM("TV", "\\bDTV\\b|\\bTV Safari|\\bBRAVIA|\\bVIERA|\\bVIDAA|\\bCrKey\\b|\\bRoku\\b|MiTV|MIBOX|tvOS"),
    FORM("TV",
         "\\bAFT\\w{1,4}(?: Build|\\))|PlayStation [3-9]|\\bXbox\\b|Nintendo Wii|\\bWii ?U\\b|Dreamcast"),
    FORM("Other", "PlayStation|Nintendo|\\bPSP\\b|watchOS|SmartWatch|Apple Watch|\\bWatch\\d+,\\d|HomePod"),
    FORM("Other", "OculusBrowser|\\bQuest \\d|QtCarBrowser|\\bTesla/"),
    FORM("Tablet",
         "iPad|PlayBook|TouchPad|\\bKindle|\\bKF\\w{2,6}(?: Build|\\))|\\bSilk/|\\bTablet\\b(?! PC)"),
    FORM("Tablet", "Nexus (?:7|9|10)\\b|\\bSM-[TX]\\d|\\bGT-[PN][158]\\d{3}|Galaxy Tab"),
    FORM("Mobile", "Windows CE|IEMobile|\\bJ2ME\\b"),
};

/* Names that determine the class of a device, separated by bars. */
struct class_names {
	enum agent_device device;
	struct str names;
};

/* By uap-core's name of the device, or of its brand. */
static const struct class_names classes_by_device[] = {
    {AGENT_DEVICE_TV, STR("Inettv|Generic_Inettv")},
    {AGENT_DEVICE_TABLET, STR("Generic Tablet|Generic_Android_Tablet|Microsoft Surface RT")},
    {AGENT_DEVICE_MOBILE, STR("Generic Smartphone|Generic Feature Phone")},
    {AGENT_DEVICE_DESKTOP, STR("Mac")},
};

/* By the system, when nothing else is known. For Android see android_class(). */
static const struct class_names classes_by_os[] = {
    {AGENT_DEVICE_DESKTOP,
     STR("Windows|Mac OS X|Mac OS|Linux|Chrome OS|Ubuntu|Debian|Fedora|Red Hat|CentOS")},
    {AGENT_DEVICE_DESKTOP, STR("Gentoo|SUSE|openSUSE|Slackware|Mageia|Mandriva|Kubuntu|Lubuntu|PCLinuxOS")},
    {AGENT_DEVICE_DESKTOP, STR("Linux Mint|Arch Linux|Puppy|BackTrack|FreeBSD|OpenBSD|NetBSD|BSD|Solaris")},
    {AGENT_DEVICE_DESKTOP, STR("SerenityOS")},
    {AGENT_DEVICE_MOBILE,
     STR("iOS|Windows Phone|Windows Mobile|BlackBerry OS|KaiOS|Firefox OS|Sailfish|Tizen")},
    {AGENT_DEVICE_MOBILE, STR("Symbian OS|Symbian^3|Symbian^3 Anna|Symbian^3 Belle|MeeGo|Maemo|Bada|webOS")},
    {AGENT_DEVICE_MOBILE, STR("Nokia Series 40|Nokia Series 30 Plus|Brew MP|BREW")},
    {AGENT_DEVICE_TABLET, STR("BlackBerry Tablet OS|WeTab|Kindle")},
    {AGENT_DEVICE_TV, STR("ATV OS X|WebTV|Chromecast|VRE")},
};

static const struct str device_names[] = {
    [AGENT_DEVICE_OTHER] = STR("Other"),   [AGENT_DEVICE_DESKTOP] = STR("Desktop"),
    [AGENT_DEVICE_MOBILE] = STR("Mobile"), [AGENT_DEVICE_TABLET] = STR("Tablet"),
    [AGENT_DEVICE_TV] = STR("TV"),         [AGENT_DEVICE_BOT] = STR("Bot"),
};

struct str agent_device_name(enum agent_device device)
{
	return device_names[device];
}

/* ---- state ---- */

/* A cached result. The cache is a ring for the clock algorithm; `next` links the chains of its hash table. */
struct cached_agent {
	uint64_t hash;
	uint32_t next; /* in its chain: 1 + index; 0: none */
	uint16_t len;
	bool used; /* since the clock hand passed */
	struct agent_info info;
	char text[];
};

struct agents {
	uint64_t seed;
	struct agent_rules *rules; /* NULL until the first miss */
	struct arena rules_mem;    /* their texts */
	bool rules_corrupt;        /* loading them is not tried again */

	size_t cache_max;
	size_t cache_count;
	size_t hand;
	struct cached_agent **cache;
	uint32_t *chains;
	uint64_t chains_mask;

	struct arena names_mem;
	size_t names_count;
	size_t names_open;
	struct str names[NAMES_MAX];
	uint16_t name_slots[NAME_SLOTS]; /* open addressing: 1 + index; 0: empty */

	struct agents_stats stats;
};

int agents_new(size_t cache_entries_max, struct agents **ret, struct err *e)
{
	struct agents *a = calloc(1, sizeof(*a));
	if (!a)
		return err_set(e, ERR_NOMEM, "out of memory for user agents");
	randombytes_buf(&a->seed, sizeof(a->seed));
	a->cache_max = MIN(cache_entries_max, UINT32_MAX / 2);
	size_t chains = 64;
	while (chains < a->cache_max)
		chains *= 2;
	a->chains_mask = chains - 1;
	a->cache = calloc(a->cache_max + 1, sizeof(struct cached_agent *));
	a->chains = calloc(chains, sizeof(*a->chains));
	if (!a->cache || !a->chains) {
		agents_free(a);
		return err_set(e, ERR_NOMEM, "out of memory for %zu user agents", cache_entries_max);
	}
	*ret = a;
	return 0;
}

void agents_free(struct agents *a)
{
	if (!a)
		return;
	for (size_t i = 0; a->cache && i < a->cache_count; i++)
		free(a->cache[i]);
	free(a->cache);
	free(a->chains);
	agent_rules_free(a->rules);
	arena_release(&a->rules_mem);
	arena_release(&a->names_mem);
	free(a);
}

struct agents_stats agents_read_stats(const struct agents *a)
{
	struct agents_stats stats = a->stats;
	stats.entries = a->cache_count;
	stats.names = a->names_count;
	if (a->rules) {
		struct agent_rules_stats rules = agent_rules_read_stats(a->rules);
		stats.rules_compiled = rules.compiled;
		stats.rules_run = rules.runs;
		stats.skipped = rules.skipped;
	}
	return stats;
}

static int rules_load(struct agents *a)
{
	CLEANUP(buf_release) struct buf rules = {0};
	CLEANUP(arena_release) struct arena mem = {0};
	int r = uap_rules_read(&mem, &rules);
	if (r < 0)
		return r;
	buf_append(&rules, own_rules, sizeof(own_rules));
	if (rules.failed)
		return ERR_NOMEM;
	size_t count = rules.len / sizeof(struct agent_rule);
	if (count > AGENT_RULES_MAX)
		return ERR_CORRUPT;
	r = agent_rules_new((const struct agent_rule *)(const void *)rules.data, count, &a->rules);
	if (r == 0) {
		a->rules_mem = mem;
		mem = (struct arena){0};
	}
	return r;
}

/* Loads the rules at the first miss; after ERR_NOMEM a later miss tries again. */
static bool rules_ready(struct agents *a)
{
	if (a->rules)
		return true;
	if (!a->rules_corrupt)
		a->rules_corrupt = rules_load(a) == ERR_CORRUPT;
	return a->rules;
}

/* ---- names ---- */

struct name_text {
	char text[NAME_BYTES_MAX];
	size_t len;
};

/* Writes `pattern` with its $1 to $4 filled in. False, and empty, when it is too long. */
static bool name_write(struct name_text *n, struct str pattern, const struct str groups[AGENT_GROUPS])
{
	n->len = 0;
	for (size_t i = 0; i < pattern.len; i++) {
		struct str part = str_n(&pattern.ptr[i], 1);
		int group = i + 1 < pattern.len ? pattern.ptr[i + 1] - '0' : 0;
		if (pattern.ptr[i] == '$' && group > 0 && group < AGENT_GROUPS) {
			part = groups[group];
			i++;
		}
		if (part.len > sizeof(n->text) - n->len) {
			n->len = 0;
			return false;
		}
		if (part.len > 0)
			memcpy(n->text + n->len, part.ptr, part.len);
		n->len += part.len;
	}
	return true;
}

/* Keeps the name as long as `a` lives; "Other" if there is no room. */
static struct str names_keep(struct agents *a, struct str name, bool open)
{
	size_t at = hash_str(name, a->seed) % NAME_SLOTS;
	while (a->name_slots[at] && !str_eq(a->names[a->name_slots[at] - 1], name))
		at = (at + 1) % NAME_SLOTS;
	uint16_t *slot = &a->name_slots[at];
	if (*slot)
		return a->names[*slot - 1];
	struct str kept = STR_NULL;
	if (a->names_count < NAMES_MAX && !(open && a->names_open == NAMES_OPEN_MAX))
		kept = arena_str(&a->names_mem, name);
	if (!kept.ptr) {
		a->stats.names_refused++;
		return OTHER;
	}
	a->names[a->names_count++] = kept;
	a->names_open += open;
	*slot = (uint16_t)a->names_count;
	return kept;
}

static struct str name_of(struct agents *a, const struct agent_match *match)
{
	const struct agent_rule *rule = match->rule;
	if (!rule)
		return OTHER;
	struct name_text n;
	bool spelled_out = rule->value.ptr && !memchr(rule->value.ptr, '$', rule->value.len);
	bool fits = name_write(&n, rule->value.ptr ? rule->value : STR("$1"), match->groups);
	struct str name = str_trim(str_n(n.text, n.len));
	if (!fits || !utf8_is_printable(name)) {
		a->stats.names_refused++;
		return OTHER;
	}
	return name.len > 0 ? names_keep(a, name, !spelled_out && !rule->names_fixed) : OTHER;
}

/* ---- classes ---- */

static bool class_find(const struct class_names *classes, size_t count, struct str name,
                       enum agent_device *ret)
{
	for (size_t i = 0; i < count; i++) {
		for (struct str rest = classes[i].names; rest.ptr;) {
			if (str_eq(str_cut(&rest, '|'), name)) {
				*ret = classes[i].device;
				return true;
			}
		}
	}
	return false;
}

/* Browsers send "Mobile" on phones and not on tablets; other programs never do. */
static enum agent_device android_class(struct str agent)
{
	bool browser = str_starts(agent, STR("Mozilla/"));
	bool mobile = memmem(agent.ptr, agent.len, "Mobi", 4);
	return browser && !mobile ? AGENT_DEVICE_TABLET : AGENT_DEVICE_MOBILE;
}

static enum agent_device device_class(struct str agent, const struct agent_match *device, struct str os)
{
	enum agent_device class;
	struct name_text family = {.len = 0}, brand = {.len = 0};
	if (device->rule) {
		name_write(&family, device->rule->value, device->groups);
		name_write(&brand, device->rule->brand, device->groups);
	}
	if (class_find(classes_by_device, ARRAY_LEN(classes_by_device), str_n(family.text, family.len),
	               &class) ||
	    class_find(classes_by_device, ARRAY_LEN(classes_by_device), str_n(brand.text, brand.len), &class))
		return class;
	if (str_eq(os, STR("Android")))
		return android_class(agent);
	if (class_find(classes_by_os, ARRAY_LEN(classes_by_os), os, &class))
		return class;
	/* A named device without a known system: an old phone. */
	return device->rule ? AGENT_DEVICE_MOBILE : AGENT_DEVICE_OTHER;
}

static void agent_classify(struct agents *a, struct str agent, struct agent_info *ret)
{
	struct agent_match matches[AGENT_LISTS];
	agent_rules_match(a->rules, agent, matches);
	const struct agent_match *device = &matches[AGENT_LIST_DEVICE];
	const struct agent_rule *bot = matches[AGENT_LIST_BOT].rule;
	const struct agent_rule *form = matches[AGENT_LIST_FORM].rule;
	ret->browser = name_of(a, &matches[AGENT_LIST_BROWSER]);
	ret->os = name_of(a, &matches[AGENT_LIST_OS]);
	if (bot)
		ret->bot = bot->value;
	else if (device->rule && str_eq(device->rule->value, STR("Spider")))
		ret->bot = STR("crawler");
	if (ret->bot.ptr)
		ret->device = agent_device_name(AGENT_DEVICE_BOT);
	else if (form)
		ret->device = form->value;
	else
		ret->device = agent_device_name(device_class(agent, device, ret->os));
}

/* ---- cache ---- */

static struct cached_agent *cache_find(struct agents *a, struct str agent, uint64_t hash)
{
	uint32_t at = a->chains[hash & a->chains_mask];
	while (at) {
		struct cached_agent *known = a->cache[at - 1];
		if (known->hash == hash && str_eq(str_n(known->text, known->len), agent))
			return known;
		at = known->next;
	}
	return NULL;
}

/* An index for a new entry: an unused one, or the first that was not used since the clock hand passed. */
static size_t cache_make_room(struct agents *a)
{
	if (a->cache_count < a->cache_max)
		return a->cache_count++;
	while (a->cache[a->hand]->used) {
		a->cache[a->hand]->used = false;
		a->hand = (a->hand + 1) % a->cache_max;
	}
	size_t at = a->hand;
	a->hand = (at + 1) % a->cache_max;
	uint32_t *link = &a->chains[a->cache[at]->hash & a->chains_mask];
	while (*link != at + 1)
		link = &a->cache[*link - 1]->next;
	*link = a->cache[at]->next;
	free(a->cache[at]);
	a->stats.evictions++;
	return at;
}

void agents_load(struct agents *a)
{
	(void)rules_ready(a); /* if it fails, the next miss tries again */
}

void agents_find(struct agents *a, struct str user_agent, struct agent_info *ret)
{
	struct str agent = str_trim(user_agent);
	agent.len = MIN(agent.len, AGENT_BYTES_MAX);
	*ret = (struct agent_info){OTHER, OTHER, agent_device_name(AGENT_DEVICE_OTHER), STR_NULL};
	if (agent.len == 0 || str_eq(agent, STR("-"))) {
		ret->device = agent_device_name(AGENT_DEVICE_BOT);
		ret->bot = STR("no-user-agent");
		a->stats.hits++;
		return;
	}
	uint64_t hash = hash_str(agent, a->seed);
	struct cached_agent *known = cache_find(a, agent, hash);
	if (known) {
		known->used = true;
		*ret = known->info;
		a->stats.hits++;
		return;
	}
	a->stats.misses++;
	if (!rules_ready(a)) {
		a->stats.rules_missing++;
		return;
	}
	agent_classify(a, agent, ret);
	/* Without memory, it is classified again next time. */
	struct cached_agent *entry = a->cache_max > 0 ? malloc(sizeof(*entry) + agent.len) : NULL;
	if (!entry)
		return;
	*entry = (struct cached_agent){.hash = hash, .len = (uint16_t)agent.len, .info = *ret};
	memcpy(entry->text, agent.ptr, agent.len);
	size_t at = cache_make_room(a);
	uint32_t *chain = &a->chains[hash & a->chains_mask];
	entry->next = *chain;
	*chain = (uint32_t)at + 1;
	a->cache[at] = entry;
}
