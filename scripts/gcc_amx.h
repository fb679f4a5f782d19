// The two intrinsics of AMX that GCC before 11.5, 12.4 and 13.3 has wrong (its bug 114098): it takes the configuration of
// the tiles for 8 bytes, and moves or drops the stores to the other 56. Included before each C++ file of llama.cpp.
#ifdef __AMX_TILE__
#include <immintrin.h>

typedef char localspec_tiles[64];

static inline void localspec_load_tiles(const void * tiles) {
    __asm__ volatile("ldtilecfg\t%X0" : : "m"(*(const localspec_tiles *) tiles));
}

static inline void localspec_store_tiles(void * tiles) {
    __asm__ volatile("sttilecfg\t%X0" : "=m"(*(localspec_tiles *) tiles));
}

#define _tile_loadconfig localspec_load_tiles
#define _tile_storeconfig localspec_store_tiles
#endif
