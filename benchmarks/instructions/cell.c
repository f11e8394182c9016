/* The comparison of a cell, alone: cell.sh counts its instructions. cell.h is cut out of _cells.pxd. */
#include <stdint.h>
#include <stdlib.h>
#include "cell.h"

static int16_t rests[16] __attribute__((aligned(64)));

#ifdef EMPTY
static inline unsigned compare(const int16_t *at, int16_t rest) { return (unsigned)(rest + at[0]); }
#else
#define compare ringhash_first_not_below
#endif

int main(int count, char **words) {
    int32_t left = (int32_t)strtol(words[count - 1], NULL, 10);
    unsigned sum = 0;
    for (int i = 0; i < 16; i++) rests[i] = (int16_t)(i * 4000 - 32000);
    for (int32_t i = 0; i < left; i++) {
        int16_t rest = (int16_t)(i * 40503);
        __asm__ volatile("" : "+r"(rest) : : "memory"); /* no comparison is done beforehand, none together */
        sum += compare(rests, rest);
    }
    return (int)(sum & 1);
}
