/*
 * How counters lie on Redis, and what changes them.
 *
 * A stream is a hash. A link's field is "EPOCH CLICKS TOLD": its total, and that of which the store was told
 * last, or "-" when it had clicks since that are not in the total. Two fields are the stream's own.
 *
 * "@" is "EPOCH LIFE PLACE": totals of this epoch are those at this place in the stream, as long as this life
 * of the server (its `run_id`) lasts. A server that was started again, or has taken over from another, may
 * have lost the last of it. A place is an offset, or "FROM>TO/N" when only N parts of that step were added. A
 * new epoch makes all totals old at once.
 *
 * "@reach" is how far in the stream the sink may be.
 */
#include "counters/scripts.h"

#define LIFE_MS "2592000000" /* 30 days after the last step a stream is forgotten */
#define FAR     "100000000"  /* a stream is not read again from so far back: it is another one */
#define SCRIPT_STATE                                                                       \
	"local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')\n"         \
	"local function state(key)\n"                                                      \
	"  local own = redis.call('HGET', key, '@') or ''\n"                               \
	"  local epoch, life, place = string.match(own, '^(%d+) (%w+) (%S+)$')\n"          \
	"  if not epoch then return 0, '', '' end\n"                                       \
	"  return tonumber(epoch), life, place\n"                                          \
	"end\n"                                                                            \
	"local function parts(value)\n"                                                    \
	"  local epoch, clicks, told = string.match(value or '', '^(%d+) (%d+) (%S+)$')\n" \
	"  return tonumber(epoch), tonumber(clicks), told\n"                               \
	"end\n"                                                                            \
	"local function value(epoch, clicks, told)\n"                                      \
	"  return string.format('%.0f %.0f %s', epoch, clicks, told)\n"                    \
	"end\n"                                                                            \
	"local function values(key, first, step)\n" /* of the links among the arguments */ \
	"  local links = {}\n"                                                             \
	"  for i = first, #ARGV, step do links[#links + 1] = ARGV[i] end\n"                \
	"  if #links == 0 then return links, {} end\n"                                     \
	"  return links, redis.call('HMGET', key, unpack(links))\n"                        \
	"end\n"

/* ARGV: place before, place after, offset after, reach; then link, clicks... Gives its fate (enum
 * counters_fate), and which links want their total. */
const char counters_add_script[] = SCRIPT_STATE
    "local key, before, after, to = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])\n"
    "local epoch, life, place = state(key)\n"
    "local reach = math.max(tonumber(redis.call('HGET', key, '@reach') or 0), tonumber(ARGV[4]))\n"
    "local at = tonumber(string.match(place, '^%d+') or 0)\n"
    "if life == run and at >= to and at < to + " FAR " then return {2} end\n"
    "local out = {1}\n"
    "if life ~= run or place ~= before then epoch, out[1] = epoch + 1, 3 end\n"
    "local set = {'@', string.format('%.0f %s %s', epoch, run, after)}\n"
    "local links, olds = values(key, 5, 2)\n"
    "for i, old in ipairs(olds) do\n"
    "  local e, clicks, told = parts(old)\n"
    "  set[#set + 1] = links[i]\n"
    "  if e == epoch then\n"
    "    set[#set + 1] = value(e, clicks + tonumber(ARGV[4 + 2 * i]), told)\n"
    "  else\n"
    "    set[#set + 1] = value(e or 0, clicks or 0, '-')\n"
    "    if reach <= to then out[#out + 1] = i - 1 end\n"
    "  end\n"
    "end\n"
    "redis.call('HSET', key, unpack(set))\n"
    "redis.call('SADD', KEYS[2], key)\n"
    "redis.call('PEXPIRE', key, " LIFE_MS ")\n"
    "redis.call('PEXPIRE', KEYS[2], " LIFE_MS ")\n"
    "return out\n";

/* ARGV: offset. */
const char counters_announce_script[] =
    "local reach, to = tonumber(redis.call('HGET', KEYS[1], '@reach') or 0), tonumber(ARGV[1])\n"
    "if reach < to or reach >= to + " FAR " then redis.call('HSET', KEYS[1], '@reach', ARGV[1]) end\n"
    "return redis.call('PEXPIRE', KEYS[1], " LIFE_MS ")\n";

/* ARGV: place; then link, clicks... */
const char counters_put_script[] = SCRIPT_STATE
    "local epoch, life, place = state(KEYS[1])\n"
    "if life ~= run or place ~= ARGV[1] then return 0 end\n"
    "if tonumber(redis.call('HGET', KEYS[1], '@reach') or 0) > tonumber(ARGV[1]) then return 0 end\n"
    "local set = {}\n"
    "local links, olds = values(KEYS[1], 2, 2)\n"
    "for i, old in ipairs(olds) do\n"
    "  local _, _, told = parts(old)\n"
    "  set[#set + 1] = links[i]\n"
    "  set[#set + 1] = value(epoch, tonumber(ARGV[1 + 2 * i]), told or '-')\n"
    "end\n"
    "redis.call('HSET', KEYS[1], unpack(set))\n"
    "return #links\n";

/* ARGV: place; then link... Gives their totals, -1 where there is none. */
const char counters_read_script[] = SCRIPT_STATE "local epoch, life, place = state(KEYS[1])\n"
                                                 "local good = life == run and place == ARGV[1]\n"
                                                 "local out = {}\n"
                                                 "local _, olds = values(KEYS[1], 2, 1)\n"
                                                 "for i, old in ipairs(olds) do\n"
                                                 "  local e, clicks = parts(old)\n"
                                                 "  out[i] = good and e == epoch and clicks or -1\n"
                                                 "end\n"
                                                 "return out\n";

/* ARGV: link, clicks... */
const char counters_told_script[] = SCRIPT_STATE
    "local set, epoch = {}, state(KEYS[1])\n"
    "local links, olds = values(KEYS[1], 1, 2)\n"
    "for i, old in ipairs(olds) do\n"
    "  local e, clicks = parts(old)\n"
    "  if e then\n"
    "    if e ~= epoch then clicks = math.max(clicks, tonumber(ARGV[2 * i])) end\n"
    "    set[#set + 1] = links[i]\n"
    "    set[#set + 1] = value(e, clicks, ARGV[2 * i])\n"
    "  end\n"
    "end\n"
    "if #set > 0 then redis.call('HSET', KEYS[1], unpack(set)) end\n"
    "return #set\n";

/* ARGV: cursor. Gives the next one, then links. */
const char counters_untold_script[] = SCRIPT_STATE
    "local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 512)\n"
    "local out = {page[1]}\n"
    "for i = 1, #page[2], 2 do\n"
    "  local _, clicks, told = parts(page[2][i + 1])\n"
    "  if clicks and clicks ~= tonumber(told) and page[2][i] ~= '@' then out[#out + 1] = page[2][i] end\n"
    "end\n"
    "return out\n";

/* ARGV: how many fields a stream may have. */
const char counters_trim_script[] = "if redis.call('HLEN', KEYS[1]) <= tonumber(ARGV[1]) then return 0 end\n"
                                    "local own = redis.call('HMGET', KEYS[1], '@', '@reach')\n"
                                    "redis.call('UNLINK', KEYS[1])\n"
                                    "if own[1] then redis.call('HSET', KEYS[1], '@', own[1]) end\n"
                                    "if own[2] then redis.call('HSET', KEYS[1], '@reach', own[2]) end\n"
                                    "return 1\n";

/* ARGV: link... Gives the largest total of each, -1 where there is none. */
const char counters_get_script[] =
    "local out = {}\n"
    "for i = 1, #ARGV do out[i] = -1 end\n"
    "for _, key in ipairs(redis.call('SMEMBERS', KEYS[2])) do\n"
    "  for i, value in ipairs(redis.call('HMGET', key, unpack(ARGV))) do\n"
    "    local clicks = value and tonumber(string.match(value, '^%d+ (%d+) '))\n"
    "    if clicks and clicks > 0 and clicks > out[i] then out[i] = clicks end\n"
    "  end\n"
    "end\n"
    "return out\n";
