#include "link/key_format.h"

#include <sodium.h>

const char *const key_format_alphabets[] = {"base62", "base64url", "base36", NULL};
static const uint8_t alphabet_lengths[] = {7, 8, 8};

/* The stored constant. */
struct key_format {
	uint8_t alphabet;
	uint8_t length;
};

static int key_format_check(struct key_format stored, struct key_format wanted, struct err *e)
{
	if (stored.alphabet >= ARRAY_LEN(alphabet_lengths) || stored.length < KEY_LENGTH_MIN ||
	    stored.length > KEY_LENGTH_MAX)
		return err_set(e, ERR_CORRUPT, "the store's key format is damaged; restore it from a backup");
	if (stored.alphabet == wanted.alphabet && stored.length == wanted.length)
		return 0;
	return err_set(
	    e, ERR_INVALID,
	    "this store's keys are %s of length %u, but the settings say %s of length %u, and keys "
	    "already issued would stop working; set keys.alphabet = %s and keys.length = %u, "
	    "or use a new store",
	    key_format_alphabets[stored.alphabet], stored.length, key_format_alphabets[wanted.alphabet],
	    wanted.length, key_format_alphabets[stored.alphabet], stored.length);
}

int key_length_check(uint64_t length, struct err *e)
{
	if (length == 0 || length >= KEY_LENGTH_MIN)
		return 0;
	return err_set(e, ERR_INVALID,
	               "keys.length = %u is too short; use %d to %d, or 0 for the alphabet's default",
	               (unsigned)length, KEY_LENGTH_MIN, KEY_LENGTH_MAX);
}

int key_format_fix(struct store *store, enum key_alphabet alphabet, uint64_t length, struct key_cipher *ret,
                   struct err *e)
{
	int wrong = key_length_check(length, e);
	if (wrong)
		return wrong;
	if (length == 0)
		length = alphabet_lengths[alphabet];
	const struct key_format wanted = {(uint8_t)alphabet, (uint8_t)length};
	struct key_format stored = wanted;
	uint8_t secret[KEY_SECRET_BYTES];
	randombytes_buf(secret, sizeof(secret));
	int r = registry_constant(store->registry, STR("key-shape"), &stored, sizeof(stored))
	            ?: registry_constant(store->registry, STR("key-secret"), secret, sizeof(secret));
	if (r < 0)
		return err_set(e, r, "cannot read the key secret from the store (%s)", err_name(r));
	r = key_format_check(stored, wanted, e);
	if (r == 0)
		key_cipher_init(ret, stored.alphabet, stored.length, secret);
	sodium_memzero(secret, sizeof(secret));
	return r;
}
