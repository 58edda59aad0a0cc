/* SHA-256 (FIPS 180-4). */
#ifndef KVANT_RESULTS_SHA256_H
#define KVANT_RESULTS_SHA256_H

#include <stddef.h>
#include <stdint.h>

void kv_sha256(uint8_t digest[32], const void *bytes, size_t size);

/* The digest as 64 lower-case hex digits and a terminator. */
void kv_sha256_hex(char text[65], const void *bytes, size_t size);

#endif
