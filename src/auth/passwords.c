#include "auth/passwords.h"

#include <errno.h>
#include <sodium.h>

enum { PASSES = 2, MEMORY_BYTES = 19 << 20 };

/* For accounts without a password. It has the parameters of real hashes, so a comparison takes as long; no
 * known password has a digest of all zeroes. */
static const char dummy_hash[] = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA"
                                 "$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

int password_hash(struct str text, struct arena *arena, struct str *ret)
{
	char hash[crypto_pwhash_STRBYTES];
	if (crypto_pwhash_str_alg(hash, text.len > 0 ? text.ptr : "", text.len, PASSES, MEMORY_BYTES,
	                          crypto_pwhash_ALG_ARGON2ID13) != 0)
		return ERR_NOMEM;
	struct str copy = arena_str(arena, str_of(hash));
	if (!copy.ptr)
		return ERR_NOMEM;
	*ret = copy;
	return 0;
}

int password_verify(struct str hash, struct str text)
{
	char copy[crypto_pwhash_STRBYTES];
	struct str with = hash.ptr && hash.len < sizeof(copy) ? hash : str_of(dummy_hash);
	memcpy(copy, with.ptr, with.len);
	copy[with.len] = '\0';
	errno = 0;
	bool right = crypto_pwhash_str_verify(copy, text.len > 0 ? text.ptr : "", text.len) == 0;
	if (!right && errno == ENOMEM)
		return ERR_NOMEM;
	return right && with.ptr == hash.ptr ? 0 : ERR_INVALID;
}
