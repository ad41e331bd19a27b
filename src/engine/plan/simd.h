#pragma once

// Each function is compiled for several instruction sets; the best one is chosen when the program starts.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define KAON_SIMD __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define KAON_SIMD
#endif
