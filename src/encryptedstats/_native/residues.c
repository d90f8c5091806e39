/* Bringing totals down: modulus switching, relinearisation, automorphisms, packing and its inverse, on the residues of BGV
 * ciphertexts.
 *
 * Public data only: no secret is ever seen here. Everything equals what Microsoft SEAL's evaluator gives, residue for residue;
 * tests/crypto/test_kernels.py compares. The Python side is encryptedstats/crypto/kernels.py.
 *
 * Three ways to compute modulo a prime p, behind one table of operations (struct Ops):
 *   - integers of 64 bits, for p < 2^60, on any machine;
 *   - doubles with fused multiply-add, for p < 2^50, 4 or 8 at a time: this file includes itself once for each kind of vector;
 *   - integers of 52 bits, for p < 2^50, 8 at a time, where the processor multiplies them (AVX512-IFMA).
 * Polynomials on their way ("work") are 64-bit words in the form of the chosen way, congruent but not always reduced;
 * "canonical" ones are reduced to [0, p), as SEAL's representatives must be wherever another modulus comes in.
 *
 * One idea saves a third of the transforms: what dividing by a prime subtracts is known as coefficients ("pending"), and pending
 * polynomials are added up before one transform takes them all to the form of the ciphertext. Another saves memory's time: the end
 * of a transform is done in parts, and each part of all digits is multiplied with the key, and what is pending subtracted from it,
 * while it is in the nearest cache. A third saves shuffles: values in NTT form may lie in an order of their own (Ops.held).
 */
#ifndef LANES

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_X86 1
#include <immintrin.h>
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_NEON 1
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define MAX_PRIMES 64
#define MAX_LOG 17
#define PARTS 16 /* of a transform, each of which fits into the nearest cache */

typedef unsigned __int128 u128;
typedef union { /* a coefficient on its way */
    uint64_t u;
    double d;
} word;

typedef struct { /* a prime with the tables of its transforms; twiddles in bit-reversed order, as in SEAL */
    uint64_t p;
    int n, logn;
    int bits;
    uint64_t barrett;  /* floor(2^(2 bits) / p) */
    uint64_t quotient; /* floor((2^64 - 1) / p) */
    uint64_t n_inverse, n_inverse_q;
    uint64_t *w, *wq, *iw, *iwq; /* integers, with Shoup's quotients */
    double *dw, *diw, *dwq, *diwq; /* doubles, between -p/2 and p/2, and divided by p */
    double dp, pinv, dn_inverse, dn_last;
    int tight_forward, tight_inverse; /* too large for sums of doubles to grow over all stages: reduced on the way */
    int loose; /* small enough for doubles that nobody reduces before and after a forward transform */
    int room;                         /* 52-bit integers: so many times p is below 2^52 */
    uint64_t minus_inverse;           /* minus the inverse of p modulo 2^52 */
    uint64_t *tail, *itail;           /* and the twiddles of the last two stages, as vectors want them */
} Prime;

/* Polynomials lie this many words apart: at distances of a power of two they would all want the same few lines of every cache. */
#define APART(n) ((size_t)(n) + 72)

#define IN_PART(P, part, lanes) for (int i = (P)->n / PARTS * (part), end = i + (P)->n / PARTS; i < end; i += (lanes))

typedef enum { FIRST, DROPPED, SPECIAL } Fold;

typedef enum { WORDS, WORDS_52, DOUBLES } Form;

typedef struct {
    const char *name;
    Form form; /* of polynomials and twiddles */
    const uint8_t *held; /* where values in NTT form are not kept in SEAL's order: the value at each of sixteen places */
    /* dst = src * factor, from canonical 64-bit integers; `values` are in NTT form, otherwise they are coefficients. Returns whether one
       was not canonical: then dst is nothing to work with */
    int (*load)(const Prime *, word *dst, const uint64_t *src, uint64_t factor, int values);
    void (*scale)(const Prime *, word *a, uint64_t factor);
    void (*store)(const Prime *, uint64_t *dst, const word *a, int values);
    /* dst = canonical coefficients of what is in NTT form at src (64-bit integers if raw) */
    void (*inverse)(const Prime *, word *dst, const void *src, int raw);
    /* NTT of src, which may be coefficients reduced modulo another prime: all that is done with the whole of it, into buf; and then
       all that is left for one of its parts, out = it, or out -= it. `soon` is read soon: two polynomials' worth from there on */
    void (*begin)(const Prime *, word *buf, const word *src);
    void (*finish)(const Prime *, word *buf, word *out, int part, int subtract, const word *soon);
    /* a = canonical(a * factor - pending) */
    void (*settle)(const Prime *, word *a, const word *pending, uint64_t factor);
    /* k = canonical(x * plain_factor) modulo the plain modulus, and under each of these primes with its factor
       FIRST: d = x f + k; DROPPED: d = (d + x) f + k; SPECIAL: d = d + x f + k */
    void (*fold)(const Prime *plain, uint64_t plain_factor, const Prime *, const uint64_t *factors, int primes, word *const *d,
                 const word *x, Fold how);
    /* a0 (+)= sum y_j k0_j, a1 (+)= sum y_j k1_j, in one part */
    void (*accumulate)(const Prime *, word *a0, word *a1, word *const *y, const word *keys, int count, int add, int part);
    /* even, minus = even + X^h odd, even - X^h odd with h = n >> level */
    void (*butterfly)(const Prime *, word *even, word *minus, const word *odd, int level);
    /* its inverse: even, odd = even + moved, (even - moved) / X^h; without `odd` the sum alone */
    void (*split)(const Prime *, word *even, word *odd, const word *moved, int level);
    /* dst (+)= src permuted */
    void (*permute)(const Prime *, word *dst, const word *src, const uint32_t *table, int add);
} Ops;

typedef struct {
    int n, logn, primes; /* data primes; the special prime is number `primes` */
    uint64_t t;
    Prime p[MAX_PRIMES + 1];
    Prime plain; /* t, without tables */
    uint64_t inv[MAX_PRIMES + 1][MAX_PRIMES]; /* of prime r modulo data prime i */
    uint64_t minus_inv_t[MAX_PRIMES + 1];     /* minus the inverse of prime r modulo t */
    const Ops *ops;
} Ring;

typedef struct { /* a key-switching key: for each target prime and digit, two polynomials side by side */
    PyObject *ring; /* the one that it was made for: under another it would reach beyond its words */
    int digits;
    word *words;
    uint32_t *table; /* of the automorphism that goes with it, or NULL */
} Key;

/* -- integers -------------------------------------------------------------------------------------------------------------- */

INLINE uint64_t below(uint64_t x, uint64_t p) { return x >= p ? x - p : x; }
INLINE uint64_t high(uint64_t a, uint64_t b) { return (uint64_t)(((u128)a * b) >> 64); }
INLINE uint64_t shoup(uint64_t w, uint64_t p) { return (uint64_t)((((u128)w) << 64) / p); }
INLINE uint64_t lazy_product(uint64_t x, uint64_t w, uint64_t wq, uint64_t p) { return x * w - high(x, wq) * p; } /* < 2p */
INLINE uint64_t any_below(uint64_t x, const Prime *P) { return below(x - high(x, P->quotient) * P->p, P->p); }

INLINE uint64_t product(uint64_t a, uint64_t b, const Prime *P) { /* Barrett: the quotient is at most 2 too small */
    u128 ab = (u128)a * b;
    uint64_t q = (uint64_t)(((u128)(uint64_t)(ab >> (P->bits - 1)) * P->barrett) >> (P->bits + 1));
    uint64_t r = (uint64_t)ab - q * P->p;
    return below(below(r, 2 * P->p), P->p);
}

static uint64_t power(uint64_t a, uint64_t e, const Prime *P) {
    uint64_t r = 1;
    for (a = any_below(a, P); e; e >>= 1, a = product(a, a, P))
        if (e & 1) r = product(r, a, P);
    return r;
}

static int reduced(const Prime *P, const uint64_t *a) {
    uint64_t largest = P->p - 1, seen = 0;
    for (int i = 0; i < P->n; i++) seen |= a[i] | (largest - a[i]); /* the top bit tells, and any compiler vectorises it */
    return !(seen >> 63);
}

static int int_load(const Prime *P, word *dst, const uint64_t *src, uint64_t f, int values) {
    uint64_t p = P->p, fq = shoup(f, p);
    (void)values;
    for (int i = 0; i < P->n; i++) dst[i].u = below(lazy_product(src[i], f, fq, p), p);
    return !reduced(P, src);
}

static void int_scale(const Prime *P, word *a, uint64_t f) {
    uint64_t p = P->p, fq = shoup(f, p);
    for (int i = 0; i < P->n; i++) a[i].u = below(lazy_product(a[i].u, f, fq, p), p);
}

static void int_store(const Prime *P, uint64_t *dst, const word *a, int values) {
    (void)values;
    memcpy(dst, a, 8 * (size_t)P->n);
}

static void int_inverse(const Prime *P, word *a, const void *src, int raw) {
    uint64_t p = P->p, p2 = 2 * p;
    const uint64_t *from = src;
    (void)raw;
    for (int i = 0, m = P->n / 4; i < m; i++) { /* the first two stages at once: loops over one or two are slow */
        word *x = a + 4 * i;
        uint64_t u = from[4 * i], v = from[4 * i + 1], y = from[4 * i + 2], z = from[4 * i + 3];
        uint64_t s = below(u + v, p2), d = lazy_product(u + p2 - v, P->iw[2 * m + 2 * i], P->iwq[2 * m + 2 * i], p);
        uint64_t t = below(y + z, p2), e = lazy_product(y + p2 - z, P->iw[2 * m + 2 * i + 1], P->iwq[2 * m + 2 * i + 1], p);
        x[0].u = below(s + t, p2), x[2].u = lazy_product(s + p2 - t, P->iw[m + i], P->iwq[m + i], p);
        x[1].u = below(d + e, p2), x[3].u = lazy_product(d + p2 - e, P->iw[m + i], P->iwq[m + i], p);
    }
    for (int m = P->n / 8, gap = 4; m >= 1; m >>= 1, gap <<= 1)
        for (int i = 0; i < m; i++) {
            uint64_t w = P->iw[m + i], wq = P->iwq[m + i];
            word *x = a + 2 * (size_t)i * gap, *y = x + gap;
            for (int j = 0; j < gap; j++) {
                uint64_t u = x[j].u, v = y[j].u;
                x[j].u = below(u + v, p2);
                y[j].u = lazy_product(u + p2 - v, w, wq, p);
            }
        }
    for (int i = 0; i < P->n; i++) a[i].u = below(lazy_product(a[i].u, P->n_inverse, P->n_inverse_q, p), p);
}

static void int_begin(const Prime *P, word *a, const word *src) {
    uint64_t p = P->p, p2 = 2 * p;
    for (int i = 0; i < P->n; i++) a[i].u = any_below(src[i].u, P);
    for (int m = 1, gap = P->n / 2; gap > 2; m <<= 1, gap >>= 1)
        for (int i = 0; i < m; i++) {
            uint64_t w = P->w[m + i], wq = P->wq[m + i];
            word *x = a + 2 * (size_t)i * gap, *y = x + gap;
            for (int j = 0; j < gap; j++) {
                uint64_t u = below(x[j].u, p2), v = lazy_product(y[j].u, w, wq, p);
                x[j].u = u + v;
                y[j].u = u + p2 - v;
            }
        }
}

/* The last two stages at once. */
static void int_finish(const Prime *P, word *a, word *out, int part, int subtract, const word *soon) {
    uint64_t p = P->p, p2 = 2 * p;
    (void)soon;
    for (int m = P->n / 4, i = part * (m / PARTS); i < (part + 1) * (m / PARTS); i++) {
        const word *x = a + 4 * i;
        uint64_t w = P->w[m + i], wq = P->wq[m + i], r[4];
        uint64_t u = below(x[0].u, p2), v = below(x[1].u, p2), y = lazy_product(x[2].u, w, wq, p), z = lazy_product(x[3].u, w, wq, p);
        uint64_t s = below(u + y, p2), d = below(u + p2 - y, p2);
        uint64_t t = lazy_product(v + z, P->w[2 * m + 2 * i], P->wq[2 * m + 2 * i], p);
        uint64_t e = lazy_product(v + p2 - z, P->w[2 * m + 2 * i + 1], P->wq[2 * m + 2 * i + 1], p);
        r[0] = s + t, r[1] = s + p2 - t, r[2] = d + e, r[3] = d + p2 - e;
        for (int j = 0; j < 4; j++) {
            uint64_t done = below(below(r[j], p2), p);
            out[4 * i + j].u = subtract ? below(out[4 * i + j].u + p - done, p) : done;
        }
    }
}

static void int_settle(const Prime *P, word *a, const word *pending, uint64_t f) {
    uint64_t p = P->p, fq = shoup(f, p);
    for (int i = 0; i < P->n; i++)
        a[i].u = below(below(lazy_product(a[i].u, f, fq, p), p) + p - pending[i].u, p);
}

static void int_fold(const Prime *plain, uint64_t g, const Prime *primes, const uint64_t *f, int count, word *const *d, const word *x, Fold how) {
    uint64_t gq = shoup(g, plain->p), fq[MAX_PRIMES];
    for (int j = 0; j < count; j++) fq[j] = shoup(f[j], primes[j].p);
    for (int i = 0; i < plain->n; i++) {
        uint64_t k = below(lazy_product(x[i].u, g, gq, plain->p), plain->p);
        for (int j = 0; j < count; j++) {
            uint64_t p = primes[j].p, v = x[i].u + (how == DROPPED ? d[j][i].u : 0); /* below 2^61 */
            v = below(below(lazy_product(v, f[j], fq[j], p), p) + k, p);
            d[j][i].u = how == SPECIAL ? below(d[j][i].u + v, p) : v;
        }
    }
}

static void int_accumulate(const Prime *P, word *a0, word *a1, word *const *y, const word *keys, int count, int add, int part) {
    size_t n = (size_t)P->n, each = n / PARTS, first = each * (size_t)part;
    uint64_t carry = (uint64_t)((((u128)1) << 64) % P->p), carry_q = shoup(carry, P->p);
    for (size_t i = first; i < first + each; i++) {
        u128 s0 = add ? a0[i].u : 0, s1 = add ? a1[i].u : 0; /* up to 64 products below 2^120 */
        for (int j = 0; j < count; j++) {
            const word *k = keys + 2 * APART(n) * (size_t)j;
            s0 += (u128)y[j][i].u * k[i].u;
            s1 += (u128)y[j][i].u * k[APART(n) + i].u;
        }
        a0[i].u = any_below(lazy_product((uint64_t)(s0 >> 64), carry, carry_q, P->p) + any_below((uint64_t)s0, P), P);
        a1[i].u = any_below(lazy_product((uint64_t)(s1 >> 64), carry, carry_q, P->p) + any_below((uint64_t)s1, P), P);
    }
}

/* In NTT form X^h, h = n >> level, is constant over runs of h: minus and plus the twiddles of one stage, in turns. */
static void int_butterfly(const Prime *P, word *even, word *minus, const word *odd, int level) {
    uint64_t p = P->p;
    int h = P->n >> level;
    for (int run = 0; run < 1 << level; run++) {
        uint64_t w = P->w[(1 << (level - 1)) + run / 2], wq = P->wq[(1 << (level - 1)) + run / 2];
        for (int i = run * h; i < (run + 1) * h; i++) {
            uint64_t s = below(lazy_product(odd[i].u, w, wq, p), p), e = even[i].u;
            uint64_t sum = below(e + s, p), difference = below(e + p - s, p);
            even[i].u = run & 1 ? difference : sum;
            minus[i].u = run & 1 ? sum : difference;
        }
    }
}

static void int_split(const Prime *P, word *even, word *odd, const word *moved, int level) {
    uint64_t p = P->p;
    int h = P->n >> level;
    for (int run = 0; odd && run < 1 << level; run++) {
        uint64_t w = P->iw[(1 << (level - 1)) + run / 2], wq = P->iwq[(1 << (level - 1)) + run / 2];
        for (int i = run * h; i < (run + 1) * h; i++) {
            uint64_t s = even[i].u, m = moved[i].u;
            odd[i].u = below(lazy_product(run & 1 ? m + p - s : s + p - m, w, wq, p), p);
        }
    }
    for (int i = 0; i < P->n; i++) even[i].u = below(even[i].u + moved[i].u, p);
}

static void int_permute(const Prime *P, word *dst, const word *src, const uint32_t *table, int add) {
    for (int i = 0; i < P->n; i++) dst[i].u = add ? below(dst[i].u + src[table[i]].u, P->p) : src[table[i]].u;
}

static const Ops INTEGERS = {
    "integers",  WORDS,         NULL,     int_load,       int_scale,     int_store,   int_inverse, int_begin, int_finish,
    int_settle,  int_fold,      int_accumulate, int_butterfly,  int_split,     int_permute,
};

/* -- doubles: the second half of this file, once for each kind of vector --------------------------------------------------- */

INLINE double balanced(uint64_t x, uint64_t p) { return x > p / 2 ? -(double)(p - x) : (double)x; }

#if defined(HAVE_X86) || defined(HAVE_NEON)

/* For one or two primes everything can be kept in registers. */
#define FOLD_CASE(function, some, way) case 3 * some + way: function(plain, plain_factor, primes, factors, some, d, x, way); break
#define FOLD_WITH_CONSTANTS(function)                                                                                   \
    switch (count < 3 ? 3 * count + (int)how : 0) {                                                                     \
        FOLD_CASE(function, 1, FIRST); FOLD_CASE(function, 1, DROPPED); FOLD_CASE(function, 1, SPECIAL);                \
        FOLD_CASE(function, 2, FIRST); FOLD_CASE(function, 2, DROPPED); FOLD_CASE(function, 2, SPECIAL);                \
        default: function(plain, plain_factor, primes, factors, count, d, x, how);                                      \
    }

#endif

#ifdef HAVE_NEON

/* Vectors hold two: pairs of them are taken for one of four. */
#define SOON(a) __builtin_prefetch(a, 0, 2)
#define BOTH(lower, upper) ((float64x2x2_t){{lower, upper}})
#define OF_BOTH(f, a, b) BOTH(f((a).val[0], (b).val[0]), f((a).val[1], (b).val[1]))
#define LIKE_BITS(f, a, b) vreinterpretq_f64_u64(f(vreinterpretq_u64_f64(a), b))

#define LANES 4
#define TARGET
#define NAME(f) f##_neon
#define WAY "neon"
#define vec float64x2x2_t
INLINE vec neon_load(const double *a) { return BOTH(vld1q_f64(a), vld1q_f64(a + 2)); }
INLINE void neon_store(double *a, vec x) { vst1q_f64(a, x.val[0]), vst1q_f64(a + 2, x.val[1]); }
INLINE vec neon_add(vec a, vec b) { return OF_BOTH(vaddq_f64, a, b); }
INLINE vec neon_sub(vec a, vec b) { return OF_BOTH(vsubq_f64, a, b); }
INLINE vec neon_mul(vec a, vec b) { return OF_BOTH(vmulq_f64, a, b); }
INLINE vec neon_fmadd(vec a, vec b, vec c) { return BOTH(vfmaq_f64(c.val[0], a.val[0], b.val[0]), vfmaq_f64(c.val[1], a.val[1], b.val[1])); }
/* a b - c, as minus (c - a b): rounding does not mind signs */
INLINE vec neon_fmsub(vec a, vec b, vec c)
{
    return BOTH(vnegq_f64(vfmsq_f64(c.val[0], a.val[0], b.val[0])), vnegq_f64(vfmsq_f64(c.val[1], a.val[1], b.val[1])));
}
INLINE vec neon_fnmadd(vec a, vec b, vec c) { return BOTH(vfmsq_f64(c.val[0], a.val[0], b.val[0]), vfmsq_f64(c.val[1], a.val[1], b.val[1])); }
INLINE float64x2_t neon_if(uint64x2_t mask, float64x2_t x) { return LIKE_BITS(vandq_u64, x, mask); }
INLINE vec neon_add_if_negative(vec r, vec p)
{
    return BOTH(vaddq_f64(r.val[0], neon_if(vcltzq_f64(r.val[0]), p.val[0])), vaddq_f64(r.val[1], neon_if(vcltzq_f64(r.val[1]), p.val[1])));
}
#define MAGIC_BITS vdupq_n_u64(0x4330000000000000u) /* of 2^52 */
INLINE vec neon_from_bits(const void *a)
{
    uint64x2_t low = vld1q_u64(a), high = vld1q_u64((const uint64_t *)a + 2);
    return BOTH(vreinterpretq_f64_u64(vorrq_u64(low, MAGIC_BITS)), vreinterpretq_f64_u64(vorrq_u64(high, MAGIC_BITS)));
}
INLINE void neon_to_bits(uint64_t *a, vec x)
{
    vst1q_u64(a, veorq_u64(vreinterpretq_u64_f64(x.val[0]), MAGIC_BITS)), vst1q_u64(a + 2, veorq_u64(vreinterpretq_u64_f64(x.val[1]), MAGIC_BITS));
}
#define LOAD(a) neon_load((const double *)(a))
#define STORE(a, x) neon_store((double *)(a), x)
#define ALL(x) BOTH(vdupq_n_f64(x), vdupq_n_f64(x))
#define ADD neon_add
#define SUB neon_sub
#define MUL neon_mul
#define FMADD neon_fmadd
#define FMSUB neon_fmsub
#define FNMADD neon_fnmadd
#define ADD_IF_NEGATIVE neon_add_if_negative
#define FROM_BITS neon_from_bits
#define TO_BITS neon_to_bits
#define HALVES_U(a, b) BOTH((a).val[0], (b).val[0])
#define HALVES_V(a, b) BOTH((a).val[1], (b).val[1])
#define EVENS(a, b) OF_BOTH(vzip1q_f64, a, b)
#define ODDS(a, b) OF_BOTH(vzip2q_f64, a, b)
#define REPEAT_2(w) BOTH(vdupq_n_f64((w)[0]), vdupq_n_f64((w)[1]))
#include "residues.c"

#endif

#ifdef HAVE_X86

#define SOON(a) _mm_prefetch((const char *)(a), _MM_HINT_T1)

#define LANES 4
#define TARGET __attribute__((target("avx2,fma")))
#define WAY "avx2"
#define NAME(f) f##_avx2
#define vec __m256d
#define LOAD(a) _mm256_loadu_pd((const double *)(a))
#define STORE(a, x) _mm256_storeu_pd((double *)(a), x)
#define ALL(x) _mm256_set1_pd(x)
#define ADD _mm256_add_pd
#define SUB _mm256_sub_pd
#define MUL _mm256_mul_pd
#define FMADD _mm256_fmadd_pd
#define FMSUB _mm256_fmsub_pd
#define FNMADD _mm256_fnmadd_pd
#define ADD_IF_NEGATIVE(r, p) _mm256_add_pd(r, _mm256_and_pd(p, _mm256_cmp_pd(r, _mm256_setzero_pd(), _CMP_LT_OQ)))
#define FROM_BITS(a) _mm256_castsi256_pd(_mm256_or_si256(_mm256_loadu_si256((const __m256i *)(a)), _mm256_castpd_si256(ALL(0x1p52))))
#define TO_BITS(a, x) _mm256_storeu_si256((__m256i *)(a), _mm256_xor_si256(_mm256_castpd_si256(x), _mm256_castpd_si256(ALL(0x1p52))))
#define HALVES_U(a, b) _mm256_permute2f128_pd(a, b, 0x20)
#define HALVES_V(a, b) _mm256_permute2f128_pd(a, b, 0x31)
#define EVENS(a, b) _mm256_unpacklo_pd(a, b)
#define ODDS(a, b) _mm256_unpackhi_pd(a, b)
#define REPEAT_2(w) _mm256_permute4x64_pd(_mm256_castpd128_pd256(_mm_loadu_pd(w)), 0x50)
#include "residues.c"

#define LANES 8
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define WAY "avx512"
#define NAME(f) f##_avx512
#define vec __m512d
#define LOAD(a) _mm512_loadu_pd(a)
#define STORE(a, x) _mm512_storeu_pd(a, x)
#define ALL(x) _mm512_set1_pd(x)
#define ADD _mm512_add_pd
#define SUB _mm512_sub_pd
#define MUL _mm512_mul_pd
#define FMADD _mm512_fmadd_pd
#define FMSUB _mm512_fmsub_pd
#define FNMADD _mm512_fnmadd_pd
#define ADD_IF_NEGATIVE(r, p) _mm512_mask_add_pd(r, _mm512_cmp_pd_mask(r, _mm512_setzero_pd(), _CMP_LT_OQ), r, p)
#define FROM_BITS(a) _mm512_castsi512_pd(_mm512_or_si512(_mm512_loadu_si512(a), _mm512_castpd_si512(ALL(0x1p52))))
#define TO_BITS(a, x) _mm512_storeu_si512(a, _mm512_xor_si512(_mm512_castpd_si512(x), _mm512_castpd_si512(ALL(0x1p52))))
#define SHUFFLE(a, b, ...) _mm512_permutex2var_pd(a, _mm512_setr_epi64(__VA_ARGS__), b)
#define HALVES_U(a, b) _mm512_shuffle_f64x2(a, b, 0x44)
#define HALVES_V(a, b) _mm512_shuffle_f64x2(a, b, 0xee)
#define QUARTERS_U(a, b) SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define QUARTERS_V(a, b) SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define EVENS(a, b) _mm512_unpacklo_pd(a, b) /* of a pair that went through QUARTERS */
#define ODDS(a, b) _mm512_unpackhi_pd(a, b)
#define WOVEN_A(u, v) SHUFFLE(u, v, 0, 8, 1, 9, 2, 10, 3, 11)
#define WOVEN_B(u, v) SHUFFLE(u, v, 4, 12, 5, 13, 6, 14, 7, 15)
#define UNWOVEN_U(a, b) SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define UNWOVEN_V(a, b) SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#define REPEAT_2(w) _mm512_permutexvar_pd(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), _mm512_castpd256_pd512(_mm256_loadu_pd(w)))
#define REPEAT_4(w) _mm512_permutexvar_pd(_mm512_setr_epi64(0, 0, 0, 0, 1, 1, 1, 1), _mm512_castpd128_pd512(_mm_loadu_pd(w)))
#include "residues.c"

/* -- integers of 52 bits, eight at a time: AVX512-IFMA ------------------------------------------------------------------- */

/* The processor multiplies the low 52 bits of words and adds half of the product, so that residues need no more than that to be
   right: what is above them ("loose") is left where it is until a result has to be canonical. With w and its quotient
   floor(2^52 w / p), a product of any word below 2^52 and w is below 2p (Shoup). How far sums may grow before they are reduced is the
   prime's `room`, 2^52 / p rounded down to one of a few powers of two: there is a copy of the transforms for each of them.

   Values in NTT form are kept in the order in which transforms leave them, so that they need no shuffles across two whole
   vectors, which are slow: HELD says which of sixteen values lies at which place. */
#define IFMA __attribute__((target("avx512f,avx512dq,avx512ifma")))
#define vint __m512i
#define EIGHT(x) _mm512_set1_epi64((long long)(x))
#define GET(a) _mm512_loadu_si512(a)
#define PUT(a, x) _mm512_storeu_si512(a, x)
#define PLUS _mm512_add_epi64
#define LESS _mm512_sub_epi64
#define LOWER(x, y) _mm512_min_epu64(x, y)
#define LOW(a, x, y) _mm512_madd52lo_epu64(a, x, y)
#define HIGH(x, y) _mm512_madd52hi_epu64(_mm512_setzero_si512(), x, y)
#define CLEAN(x) _mm512_and_si512(x, EIGHT((1ull << 52) - 1))
#define UNROLLED _Pragma("GCC unroll 16")
#define EIGHTS(P) for (int i = 0; i < (P)->n; i += 8)

typedef struct { /* a prime, in all lanes */
    vint minus, one, two, reciprocal;
} Lanes;

typedef struct { /* a factor with its quotient */
    vint w, q;
} Factor;

IFMA INLINE Lanes lanes_of(const Prime *P) {
    uint64_t p = P->p;
    return (Lanes){EIGHT((1ull << 52) - p), EIGHT(p), EIGHT(2 * p), EIGHT(P->quotient >> 12)};
}

IFMA INLINE Factor factor_of(uint64_t f, const Prime *P) { return (Factor){EIGHT(f), EIGHT(shoup(f, P->p) >> 12)}; }
IFMA INLINE Factor twiddle(const uint64_t *w, const uint64_t *q, size_t i) { return (Factor){EIGHT(w[i]), EIGHT(q[i])}; }

IFMA INLINE vint if_at_least(vint x, vint p) { return LOWER(x, LESS(x, p)); } /* x - p, or x where that is negative */

/* a + x f, loose: a plus less than 2p */
IFMA INLINE vint plus_product(vint a, vint x, Factor f, Lanes L) { return LOW(LOW(a, x, f.w), HIGH(x, f.q), L.minus); }
IFMA INLINE vint loose_product(vint x, Factor f, Lanes L) { return plus_product(_mm512_setzero_si512(), x, f, L); }
IFMA INLINE vint exact_product(vint x, Factor f, Lanes L) { return if_at_least(CLEAN(loose_product(x, f, L)), L.one); }
IFMA INLINE vint loose_residue(vint x, Lanes L) { return LOW(x, HIGH(x, L.reciprocal), L.minus); } /* below 2p */
IFMA INLINE vint exact_residue(vint x, Lanes L) { return if_at_least(CLEAN(loose_residue(x, L)), L.one); }

static const uint8_t HELD[16] = {0, 2, 8, 10, 4, 6, 12, 14, 1, 3, 9, 11, 5, 7, 13, 15};
#define IN_ORDER(x, y, first) _mm512_permutex2var_epi64(x, first ? _mm512_setr_epi64(0, 2, 8, 10, 4, 6, 12, 14) : _mm512_setr_epi64(1, 3, 9, 11, 5, 7, 13, 15), y)
#define BACK_IN_ORDER(x, y, first) _mm512_permutex2var_epi64(x, first ? _mm512_setr_epi64(0, 8, 1, 9, 4, 12, 5, 13) : _mm512_setr_epi64(2, 10, 3, 11, 6, 14, 7, 15), y)

IFMA static int ifma_load(const Prime *P, word *dst, const uint64_t *src, uint64_t factor, int values) {
    Lanes L = lanes_of(P);
    Factor f = factor_of(factor, P);
    __mmask8 wrong = 0;
    for (int i = 0; i < P->n; i += 16) {
        vint x = GET(&src[i]), y = GET(&src[i + 8]);
        wrong |= _mm512_cmpge_epu64_mask(_mm512_max_epu64(x, y), L.one);
        if (factor != 1) x = exact_product(x, f, L), y = exact_product(y, f, L);
        PUT(&dst[i], values ? IN_ORDER(x, y, 1) : x);
        PUT(&dst[i + 8], values ? IN_ORDER(x, y, 0) : y);
    }
    return wrong;
}

IFMA static void ifma_scale(const Prime *P, word *a, uint64_t factor) {
    Lanes L = lanes_of(P);
    Factor f = factor_of(factor, P);
    EIGHTS(P) PUT(&a[i], exact_product(GET(&a[i]), f, L));
}

IFMA static void ifma_store(const Prime *P, uint64_t *dst, const word *a, int values) {
    Lanes L = lanes_of(P);
    for (int i = 0; i < P->n; i += 16) {
        vint x = exact_residue(GET(&a[i]), L), y = exact_residue(GET(&a[i + 8]), L);
        PUT(&dst[i], values ? BACK_IN_ORDER(x, y, 1) : x);
        PUT(&dst[i + 8], values ? BACK_IN_ORDER(x, y, 0) : y);
    }
}

IFMA static void ifma_settle(const Prime *P, word *a, const word *pending, uint64_t factor) {
    Lanes L = lanes_of(P);
    Factor f = factor_of(factor, P);
    EIGHTS(P) PUT(&a[i], if_at_least(LESS(PLUS(exact_product(GET(&a[i]), f, L), L.one), GET(&pending[i])), L.one));
}

IFMA INLINE void ifma_fold_with(const Prime *plain, uint64_t plain_factor, const Prime *primes, const uint64_t *factors, const int count, word *const *d, const word *x, const Fold how) {
    Lanes T = lanes_of(plain), L[MAX_PRIMES];
    Factor g = factor_of(plain_factor, plain), f[MAX_PRIMES];
    for (int j = 0; j < count; j++) L[j] = lanes_of(&primes[j]), f[j] = factor_of(factors[j], &primes[j]);
    EIGHTS(plain) {
        vint from = GET(&x[i]), k = exact_product(from, g, T);
        for (int j = 0; j < count; j++) {
            vint v = how == DROPPED ? PLUS(from, GET(&d[j][i])) : from;
            v = PLUS(CLEAN(loose_product(v, f[j], L[j])), k); /* below 3p */
            if (how == SPECIAL) v = PLUS(v, GET(&d[j][i]));
            PUT(&d[j][i], if_at_least(if_at_least(v, L[j].two), L[j].one));
        }
    }
}

IFMA static void ifma_fold(const Prime *plain, uint64_t plain_factor, const Prime *primes, const uint64_t *factors, int count, word *const *d, const word *x, Fold how) {
    FOLD_WITH_CONSTANTS(ifma_fold_with);
}

/* Halves of products are added up apart: of up to 4 factors below 2^52 and 2^50, they stay below 2^55 and 2^52; of up to 8 for
   primes with more room. Keys are multiplied by 2^52, and Montgomery's reduction divides by it: a multiple m p of p makes the lower
   half 0. Then `more` is added; what comes out is below 2p. */
IFMA INLINE vint sum_of_halves(vint low, vint high, vint more, vint minus_inverse, Lanes L, const int room) {
    vint m = LOW(_mm512_setzero_si512(), low, minus_inverse), carry = _mm512_srli_epi64(LOW(low, m, L.one), 52);
    if (room == 4) high = CLEAN(loose_residue(high, L));
    vint sum = PLUS(PLUS(_mm512_madd52hi_epu64(high, m, L.one), carry), more);
    return room == 4 ? if_at_least(if_at_least(sum, L.two), L.one) : loose_residue(sum, L);
}

IFMA INLINE void ifma_accumulate_some(const Prime *P, word *a0, word *a1, word *const *y, const word *keys, const int count, int add, int part, const int room) {
    Lanes L = lanes_of(P);
    vint minus_inverse = EIGHT(P->minus_inverse);
    size_t n = APART(P->n);
    IN_PART(P, part, 8) {
        vint none = _mm512_setzero_si512(), high0 = none, high1 = none, low0 = none, low1 = none;
        for (int j = 0; j < count; j++) {
            const word *k = keys + 2 * n * (size_t)j + i;
            vint v = GET(&y[j][i]), k0 = GET(k), k1 = GET(k + n);
            low0 = LOW(low0, v, k0), high0 = _mm512_madd52hi_epu64(high0, v, k0);
            low1 = LOW(low1, v, k1), high1 = _mm512_madd52hi_epu64(high1, v, k1);
        }
        PUT(&a0[i], sum_of_halves(low0, high0, add ? GET(&a0[i]) : none, minus_inverse, L, room));
        PUT(&a1[i], sum_of_halves(low1, high1, add ? GET(&a1[i]) : none, minus_inverse, L, room));
    }
}

IFMA static void ifma_accumulate(const Prime *P, word *a0, word *a1, word *const *y, const word *keys, int count, int add, int part) {
    int most = P->room < 32 ? 4 : 8;
    for (int j = 0; j < count; j += most, y += most, add = 1) {
        const word *k = keys + 2 * APART(P->n) * (size_t)j;
        int some = count - j < most ? count - j : most;
        switch (P->room == 4 ? 0 : some) { /* as constants, for loops without end tests */
#define CASE(number) case number: ifma_accumulate_some(P, a0, a1, y, k, number, add, part, 8); break
            CASE(1); CASE(2); CASE(3); CASE(4); CASE(5); CASE(6); CASE(7); CASE(8);
#undef CASE
            default: ifma_accumulate_some(P, a0, a1, y, k, some, add, part, 4);
        }
    }
}

/* Plus and minus the twiddles in turns, each for a run of 2^logh, from coefficient i on. */
IFMA INLINE Factor runs_ifma(const Prime *P, const uint64_t *w, const uint64_t *q, int logh, int i) {
    uint64_t f[8], fq[8];
    for (int lane = 0; lane < (logh >= 4 ? 1 : 8); lane++) {
        int run = ((i & ~15) + HELD[(i & 15) + lane]) >> logh;
        f[lane] = run & 1 ? P->p - w[run / 2] : w[run / 2];
        fq[lane] = run & 1 ? ~q[run / 2] & ((1ull << 52) - 1) : q[run / 2]; /* floor(2^52 - x) for an x that is not whole */
    }
    return logh >= 4 ? (Factor){EIGHT(f[0]), EIGHT(fq[0])} : (Factor){GET(f), GET(fq)};
}

IFMA static void ifma_butterfly(const Prime *P, word *even, word *minus, const word *odd, int level) {
    Lanes L = lanes_of(P);
    size_t first = (size_t)1 << (level - 1);
    int logh = P->logn - level;
    Factor f = {L.one, L.one};
    EIGHTS(P) {
        if (logh < 4 || !(i & ((1 << logh) - 1))) f = runs_ifma(P, P->w + first, P->wq + first, logh, i);
        vint s = exact_product(GET(&odd[i]), f, L), e = GET(&even[i]);
        PUT(&even[i], if_at_least(PLUS(e, s), L.one));
        PUT(&minus[i], if_at_least(LESS(PLUS(e, L.one), s), L.one));
    }
}

IFMA static void ifma_split(const Prime *P, word *even, word *odd, const word *moved, int level) {
    Lanes L = lanes_of(P);
    size_t first = (size_t)1 << (level - 1);
    int logh = P->logn - level;
    Factor f = {L.one, L.one};
    EIGHTS(P) {
        vint e = GET(&even[i]), m = GET(&moved[i]);
        PUT(&even[i], if_at_least(PLUS(e, m), L.one));
        if (!odd) continue;
        if (logh < 4 || !(i & ((1 << logh) - 1))) f = runs_ifma(P, P->iw + first, P->iwq + first, logh, i);
        PUT(&odd[i], exact_product(LESS(PLUS(e, L.one), m), f, L));
    }
}

/* Automorphisms take sixteen neighbours to sixteen neighbours: see read_table. */
IFMA static void ifma_permute(const Prime *P, word *dst, const word *src, const uint32_t *table, int add) {
    Lanes L = lanes_of(P);
    EIGHTS(P) {
        const word *from = src + (table[i] & ~15u);
        vint index = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(table + i)));
        vint moved = _mm512_permutex2var_epi64(GET(from), index, GET(from + 8));
        PUT(&dst[i], add ? if_at_least(PLUS(GET(&dst[i]), moved), L.one) : moved);
    }
}

/* A butterfly of a forward transform: x, y become x + w y, x - w y. Products are taken between -p and p, so that x and y are within p
   of what x was; and x begins as many times p above 0 as there are stages until it is reduced again. */
IFMA INLINE void ahead(vint *x, vint *y, Factor f, Lanes L) {
    vint turned = LOW(LOW(LESS(_mm512_setzero_si512(), L.one), *y, f.w), HIGH(*y, f.q), L.minus);
    *y = LESS(*x, turned);
    *x = PLUS(*x, turned);
}

/* Stages from one reduction to the next, or 0 for never: from 2p with p added for each, 2p more for each have room. */
#define EVERY(room) ((room) == 4 ? 1 : (room) == 8 ? 3 : 0)

IFMA INLINE vint lifted(vint x, Lanes L, const int room) {
    return PLUS(loose_residue(x, L), room == 4 ? L.one : PLUS(L.two, L.one));
}

/* `stages` of a forward transform on 2^stages vectors; the twiddle of the first one is that of `node`. */
IFMA INLINE void ahead_across(vint *x, const int stages, const Prime *P, size_t node, Lanes L, const int room) {
    UNROLLED for (int s = 0; s < stages; s++)
        UNROLLED for (int block = 0; block < 1 << s; block++) {
            Factor f = twiddle(P->w, P->wq, (node << s) + (size_t)block);
            int half = 1 << (stages - 1 - s), first = 2 * half * block;
            UNROLLED for (int j = first; j < first + half; j++) {
                if (EVERY(room) && s % EVERY(room) == 0) x[j] = lifted(x[j], L, room);
                ahead(&x[j], &x[j + half], f, L);
            }
        }
}

/* The same on 2^stages runs of `gap` words. */
IFMA INLINE void ifma_ahead(word *a, const word *src, const int stages, int gap, const Prime *P, size_t node, Lanes L, const int room) {
    vint start = EIGHT((uint64_t)P->logn * P->p);
    for (int i = 0; i < gap; i += 8) {
        vint x[8];
        UNROLLED for (int j = 0; j < 1 << stages; j++) x[j] = GET(src + i + j * gap);
        if (node == 1 && !EVERY(room))
            UNROLLED for (int j = 0; j < 1 << (stages - 1); j++) x[j] = PLUS(x[j], start);
        ahead_across(x, stages, P, node, L, room);
        UNROLLED for (int j = 0; j < 1 << stages; j++) PUT(a + i + j * gap, x[j]);
    }
}

/* Inside vectors: for each pair of neighbouring vectors, what stands face to face in them afterwards. */
#define PAIRS 4
#define PAIR UNROLLED for (int j = 0; j < 2 * PAIRS; j += 2)
#define TURN(u, v)                                \
    PAIR {                                        \
        vint one = x[j], other = x[j + 1];        \
        x[j] = u, x[j + 1] = v;                   \
    }
#define HALVES TURN(_mm512_shuffle_i64x2(one, other, 0x44), _mm512_shuffle_i64x2(one, other, 0xee))
#define QUARTERS TURN(_mm512_shuffle_i64x2(one, other, 0x88), _mm512_shuffle_i64x2(one, other, 0xdd))
#define NEIGHBOURS TURN(_mm512_unpacklo_epi64(one, other), _mm512_unpackhi_epi64(one, other))

/* The twiddles of two blocks, in the lanes of the first and (those of the mask) of the second. */
IFMA INLINE Factor two_twiddles(const uint64_t *w, const uint64_t *q, const int mask) {
    return (Factor){_mm512_mask_set1_epi64(EIGHT(w[0]), (__mmask8)mask, (long long)w[1]),
                    _mm512_mask_set1_epi64(EIGHT(q[0]), (__mmask8)mask, (long long)q[1])};
}

/* Of the last stage but one, each twice, and of the last one: see set_tail. */
IFMA INLINE Factor four_twiddles(const uint64_t *tail) {
    vint both = GET(tail);
    return (Factor){_mm512_unpacklo_epi64(both, both), _mm512_unpackhi_epi64(both, both)};
}

IFMA INLINE Factor eight_twiddles(const uint64_t *tail) { return (Factor){GET(tail + 8), GET(tail + 16)}; }

/* The last six stages, 64 values at a time: three across vectors, three inside them.

   What is subtracted was canonical before the first stage, so that without reductions it ends below (2 logn + 1) p: `above`. It is
   subtracted from a loose residue, of which "below 2p" would not do: with a room of 32 and logn 15, 2p + 31p may be above 2^52. But
   loose_residue(x) = x - floor(x r / 2^52) p < p + x (2^52 - r p) / 2^52, where r = floor(2^52 / p) is at least 32, and so it is below
   p + 2^52 - 32p: with 31p more, below 2^52. */
IFMA INLINE void ifma_ahead_last(const word *a, word *out, int length, const Prime *P, size_t node, Lanes L, const int room, int subtract, const word *soon) {
    vint above = EVERY(room) ? L.two : EIGHT((uint64_t)(2 * P->logn + 1) * P->p);
    for (int i = 0; i < length; i += 64, node++) {
        const uint64_t *w = P->w + 8 * node, *q = P->wq + 8 * node, *tail = P->tail + 96 * (node - (size_t)P->n / 64);
        vint x[2 * PAIRS];
        UNROLLED for (int j = 0; j < 8; j++) x[j] = GET(a + i + 8 * j);
        if (soon) UNROLLED for (int j = 0; j < 64; j += 8) SOON(soon + i + j), SOON(soon + i + j + APART(P->n));
        ahead_across(x, 3, P, node, L, room);
        HALVES;
        if (EVERY(room)) PAIR x[j] = lifted(x[j], L, room);
        PAIR ahead(&x[j], &x[j + 1], two_twiddles(w + j, q + j, 0xf0), L);
        QUARTERS;
        if (EVERY(room) == 1) PAIR x[j] = lifted(x[j], L, room);
        PAIR ahead(&x[j], &x[j + 1], four_twiddles(tail + 12 * j), L);
        NEIGHBOURS;
        if (EVERY(room) == 1) PAIR x[j] = lifted(x[j], L, room);
        PAIR ahead(&x[j], &x[j + 1], eight_twiddles(tail + 12 * j), L);
        if (subtract) UNROLLED for (int j = 0; j < 8; j++) { /* a multiple of p that is above x keeps differences above 0 and below 2^52 */
            if (EVERY(room)) x[j] = loose_residue(x[j], L);
            x[j] = exact_residue(LESS(PLUS(GET(out + i + 8 * j), above), x[j]), L);
        }
        UNROLLED for (int j = 0; j < 8; j++) PUT(out + i + 8 * j, x[j]);
    }
}

IFMA INLINE void ifma_begin_with(const Prime *P, word *a, const word *src, const int room) {
    Lanes L = lanes_of(P);
    int quarter = P->n / 4;
    ifma_ahead(a, src, 2, quarter, P, 1, L, room);
    for (size_t part = 0; part < 4; part++) {
        word *b = a + part * (size_t)quarter;
        ifma_ahead(b, b, 2, quarter / 4, P, 4 + part, L, room);
    }
}

/* How many of the stages that are left of a part, beside the last six, are done at once. */
INLINE int at_once(int left) { return left == 4 ? 2 : left > 3 ? 3 : left; }

IFMA INLINE void ifma_finish_with(const Prime *P, word *a, word *out, int part, int subtract, const word *soon, const int room) {
    Lanes L = lanes_of(P);
    int each = P->n / PARTS, length = each;
    size_t node = PARTS + (size_t)part, first = (size_t)part * (size_t)each, blocks = 1;
    word *b = a + first;
    for (int left = P->logn - 4 - 6, some; left; left -= some, node <<= some, blocks <<= some, length >>= some) {
        some = at_once(left);
        for (size_t block = 0; block < blocks; block++) {
            word *c = b + block * (size_t)length;
            if (some == 3)
                ifma_ahead(c, c, 3, length / 8, P, node + block, L, room);
            else if (some == 2)
                ifma_ahead(c, c, 2, length / 4, P, node + block, L, room);
            else
                ifma_ahead(c, c, 1, length / 2, P, node + block, L, room);
        }
    }
    ifma_ahead_last(b, out + first, each, P, node, L, room, subtract, soon);
}

/* What is known of vectors when an inverse transform is compiled: they are below p times 2 to this power. */
typedef int Below;
#define LOG(room) ((room) == 4 ? 2 : (room) == 8 ? 3 : (room) == 32 ? 5 : 8)
#define BETWEEN(room) ((room) == 32 ? 2 : (room) == 256 ? 3 : 1) /* from one pass to the next: three stages double it thrice */

/* A butterfly of an inverse transform: x, y become x + y, (x - y) w. Where there would be no room for it, they are reduced first. */
IFMA INLINE void back(vint *x, vint *y, Below *below_x, Below *below_y, Factor f, Lanes L, const int room) {
    if (*below_x >= LOG(room)) *x = loose_residue(*x, L), *below_x = 1;
    if (*below_y >= LOG(room)) *y = loose_residue(*y, L), *below_y = 1;
    vint difference = LESS(PLUS(*x, _mm512_slli_epi64(L.one, (unsigned)*below_y)), *y);
    *x = PLUS(*x, *y), *below_x = 1 + (*below_x > *below_y ? *below_x : *below_y);
    *y = loose_product(difference, f, L), *below_y = 1;
}

/* The inverse of ahead_across. */
IFMA INLINE void back_across(vint *x, Below *below, const int stages, const Prime *P, size_t node, Lanes L, const int room) {
    UNROLLED for (int s = stages - 1; s >= 0; s--)
        UNROLLED for (int block = 0; block < 1 << s; block++) {
            Factor f = twiddle(P->iw, P->iwq, (node << s) + (size_t)block);
            int half = 1 << (stages - 1 - s), first = 2 * half * block;
            UNROLLED for (int j = first; j < first + half; j++) back(&x[j], &x[j + half], &below[j], &below[j + half], f, L, room);
        }
}

IFMA INLINE void put_back(word *a, int apart, const int count, vint *x, const Below *below, Lanes L, const int room) {
    UNROLLED for (int j = 0; j < count; j++) PUT(a + j * apart, below[j] > BETWEEN(room) ? loose_residue(x[j], L) : x[j]);
}

IFMA INLINE void ifma_back(word *a, const int stages, int gap, const Prime *P, size_t node, Lanes L, const int room) {
    for (int i = 0; i < gap; i += 8) {
        vint x[8];
        Below below[8];
        UNROLLED for (int j = 0; j < 1 << stages; j++) x[j] = GET(a + i + j * gap), below[j] = BETWEEN(room);
        back_across(x, below, stages, P, node, L, room);
        put_back(a + i, gap, 1 << stages, x, below, L, room);
    }
}

/* The first six stages, of residues below 2p. */
IFMA INLINE void ifma_back_first(word *a, const word *src, int raw, int length, const Prime *P, size_t node, Lanes L, const int room) {
    for (int i = 0; i < length; i += 64, node++) {
        const uint64_t *w = P->iw + 8 * node, *q = P->iwq + 8 * node, *tail = P->itail + 96 * (node - (size_t)P->n / 64);
        vint x[2 * PAIRS];
        Below below[2 * PAIRS];
        UNROLLED for (int j = 0; j < 8; j++) x[j] = GET(src + i + 8 * j), below[j] = 1;
        if (raw) TURN(IN_ORDER(one, other, 1), IN_ORDER(one, other, 0));
        PAIR back(&x[j], &x[j + 1], &below[j], &below[j + 1], eight_twiddles(tail + 12 * j), L, room);
        NEIGHBOURS;
        PAIR below[j + 1] = below[j];
        PAIR back(&x[j], &x[j + 1], &below[j], &below[j + 1], four_twiddles(tail + 12 * j), L, room);
        HALVES;
        PAIR below[j + 1] = below[j];
        PAIR back(&x[j], &x[j + 1], &below[j], &below[j + 1], two_twiddles(w + j, q + j, 0xcc), L, room);
        QUARTERS;
        PAIR below[j + 1] = below[j];
        back_across(x, below, 3, P, node, L, room);
        put_back(a + i, 8, 8, x, below, L, room);
    }
}

/* The last two stages, divided by n and made canonical. */
IFMA INLINE void ifma_back_last(const Prime *P, word *a, Lanes L, const int room) {
    int quarter = P->n / 4;
    Factor f1 = factor_of(product(P->n_inverse, P->iw[1], P), P), scale = factor_of(P->n_inverse, P);
    Factor f2 = twiddle(P->iw, P->iwq, 2), f3 = twiddle(P->iw, P->iwq, 3);
    for (int i = 0; i < quarter; i += 8) {
        vint x[4];
        Below below[4];
        UNROLLED for (int j = 0; j < 4; j++) x[j] = GET(a + i + j * quarter), below[j] = BETWEEN(room);
        back(&x[0], &x[1], &below[0], &below[1], f2, L, room);
        back(&x[2], &x[3], &below[2], &below[3], f3, L, room);
        if (below[0] >= LOG(room)) x[0] = loose_residue(x[0], L), x[2] = loose_residue(x[2], L), below[2] = 1;
        PUT(a + i, exact_product(PLUS(x[0], x[2]), scale, L));
        PUT(a + i + quarter, exact_product(PLUS(x[1], x[3]), scale, L));
        PUT(a + i + 2 * quarter, exact_product(LESS(PLUS(x[0], _mm512_slli_epi64(L.one, (unsigned)below[2])), x[2]), f1, L));
        PUT(a + i + 3 * quarter, exact_product(LESS(PLUS(x[1], L.two), x[3]), f1, L));
    }
}

IFMA INLINE void ifma_inverse_with(const Prime *P, word *a, const word *src, const int raw, const int room) {
    Lanes L = lanes_of(P);
    int each = P->n / PARTS;
    for (size_t part = 0; part < PARTS; part++) {
        word *b = a + part * (size_t)each;
        int blocks = each / 64, length = 64;
        size_t node = (PARTS + part) * (size_t)blocks;
        ifma_back_first(b, src + part * (size_t)each, raw, each, P, node, L, room);
        for (int left = P->logn - 4 - 6, some; left; left -= some) {
            some = at_once(left);
            node >>= some, blocks >>= some, length <<= some;
            for (int block = 0; block < blocks; block++) {
                word *c = b + block * length;
                if (some == 3)
                    ifma_back(c, 3, length / 8, P, node + (size_t)block, L, room);
                else if (some == 2)
                    ifma_back(c, 2, length / 4, P, node + (size_t)block, L, room);
                else
                    ifma_back(c, 1, length / 2, P, node + (size_t)block, L, room);
            }
        }
    }
    for (size_t part = 0; part < 4; part++) ifma_back(a + part * (size_t)(P->n / 4), 2, P->n / 16, P, 4 + part, L, room);
    ifma_back_last(P, a, L, room);
}

#define BY_ROOM(function, ...)                        \
    switch (P->room) {                                \
        case 4: function(__VA_ARGS__, 4); break;      \
        case 8: function(__VA_ARGS__, 8); break;      \
        case 32: function(__VA_ARGS__, 32); break;    \
        default: function(__VA_ARGS__, 256);          \
    }

IFMA static void ifma_begin(const Prime *P, word *buf, const word *src) { BY_ROOM(ifma_begin_with, P, buf, src) }

IFMA static void ifma_finish(const Prime *P, word *buf, word *out, int part, int subtract, const word *soon) {
    BY_ROOM(ifma_finish_with, P, buf, out, part, subtract, soon)
}

IFMA static void ifma_inverse(const Prime *P, word *dst, const void *src, int raw) {
    if (raw)
        BY_ROOM(ifma_inverse_with, P, dst, src, 1)
    else
        BY_ROOM(ifma_inverse_with, P, dst, src, 0)
}

static const Ops INTEGERS_52 = {
    "ifma",      WORDS_52,       HELD,      ifma_load,       ifma_scale,     ifma_store,   ifma_inverse, ifma_begin, ifma_finish,
    ifma_settle, ifma_fold,      ifma_accumulate, ifma_butterfly,  ifma_split,     ifma_permute,
};

#endif

/* -- the ring ------------------------------------------------------------------------------------------------------------- */

/* Large keys on large pages, where there are some: they are read from end to end, and looking up every 4 KiB takes long. */
static void *aligned(size_t bytes) {
    void *found = NULL;
    size_t page = (size_t)1 << 21;
#ifdef _WIN32
    found = _aligned_malloc(bytes ? bytes : 64, bytes < 2 * page ? 64 : page);
#else
    if (posix_memalign(&found, bytes < 2 * page ? 64 : page, bytes ? bytes : 64)) return NULL;
#endif
#ifdef MADV_HUGEPAGE
    if (bytes >= 2 * page) madvise(found, bytes, MADV_HUGEPAGE);
#endif
    return found;
}

static void release(void *found) {
#ifdef _WIN32
    _aligned_free(found);
#else
    free(found);
#endif
}

static void free_prime(Prime *P) {
    void *const tables[] = {P->w, P->wq, P->iw, P->iwq, P->dw, P->diw, P->dwq, P->diwq, P->tail, P->itail};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) release(tables[i]);
}

static uint32_t reversed(uint32_t x, int bits) {
    uint32_t r = 0;
    for (int i = 0; i < bits; i++) r |= ((x >> i) & 1u) << (bits - 1 - i);
    return r;
}

static void set_modulus(Prime *P, uint64_t p, int n, int logn) {
    P->p = p;
    P->n = n;
    P->logn = logn;
    P->bits = 64 - __builtin_clzll(p);
    P->barrett = (uint64_t)((((u128)1) << (2 * P->bits)) / p);
    P->quotient = ~(uint64_t)0 / p;
    P->dp = (double)p;
    P->pinv = 1.0 / (double)p;
}

/* For sixteen values each: the four twiddles of the last stage but one beside their quotients, and the eight of the last one. */
static void set_tail(uint64_t *tail, const uint64_t *w, const uint64_t *q, int n) {
    static const uint8_t PAIRED[4] = {0, 2, 1, 3}, LAST[8] = {0, 1, 4, 5, 2, 3, 6, 7};
    for (int i = 0; i < n / 16; i++, tail += 24) {
        for (int j = 0; j < 4; j++) tail[2 * j] = w[n / 4 + 4 * i + PAIRED[j]], tail[2 * j + 1] = q[n / 4 + 4 * i + PAIRED[j]];
        for (int j = 0; j < 8; j++) tail[8 + j] = w[n / 2 + 8 * i + LAST[j]], tail[16 + j] = q[n / 2 + 8 * i + LAST[j]];
    }
}

/* Tables of twiddles. The errors of a product of doubles add 1.5 p 2^-54 of its factor to half of p: so sums may grow over all stages of a forward
   transform, and over two stages of an inverse one, up to these sizes: factors stay below 2^52, as NEAREST needs it. With p < 2^47 they do
   even from coefficients below 2^50 on, which are those of another prime: after 16 stages values are below 2^50 + 12 p < 2^52, and their
   products with a key below p. */
static int set_tables(Prime *P, uint64_t root, Form form, int largest_bits) {
    int n = P->n;
    uint64_t *w = aligned(8 * (size_t)n), *iw = aligned(8 * (size_t)n);
    P->w = w, P->iw = iw;
    if (!w || !iw) return -1;
    uint64_t inverse = power(root, P->p - 2, P), a = 1, b = 1;
    for (int i = 0; i < n; i++, a = product(a, root, P), b = product(b, inverse, P)) {
        uint32_t at = reversed((uint32_t)i, P->logn);
        w[at] = a, iw[at] = b;
    }
    P->n_inverse = power((uint64_t)n, P->p - 2, P);
    P->n_inverse_q = shoup(P->n_inverse, P->p);
    if (form != DOUBLES) {
        int shift = form == WORDS_52 ? 12 : 0;
        uint64_t found = P->p; /* the inverse modulo 8; each step of Newton's doubles the bits */
        for (int bits = 3; bits < 52; bits *= 2) found *= 2 - P->p * found;
        P->minus_inverse = (0 - found) & ((1ull << 52) - 1);
        P->room = largest_bits > 49 ? 4 : largest_bits > 47 || P->logn > 15 ? 8 : largest_bits > 44 ? 32 : 256;
        P->wq = aligned(8 * (size_t)n), P->iwq = aligned(8 * (size_t)n);
        if (!P->wq || !P->iwq) return -1;
        for (int i = 0; i < n; i++) P->wq[i] = shoup(w[i], P->p) >> shift, P->iwq[i] = shoup(iw[i], P->p) >> shift;
        if (form == WORDS) return 0;
        P->tail = aligned(12 * (size_t)n), P->itail = aligned(12 * (size_t)n);
        if (!P->tail || !P->itail) return -1;
        set_tail(P->tail, w, P->wq, n), set_tail(P->itail, iw, P->iwq, n);
        return 0;
    }
    P->loose = P->bits <= 47;
    P->tight_forward = P->bits > 48;
    P->tight_inverse = P->bits > 49;
    P->dw = aligned(8 * (size_t)n), P->diw = aligned(8 * (size_t)n), P->dwq = aligned(8 * (size_t)n), P->diwq = aligned(8 * (size_t)n);
    if (!P->dw || !P->diw || !P->dwq || !P->diwq) return -1;
    for (int i = 0; i < n; i++) P->dw[i] = balanced(w[i], P->p), P->diw[i] = balanced(iw[i], P->p);
    for (int i = 0; i < n; i++) P->dwq[i] = P->dw[i] / P->dp, P->diwq[i] = P->diw[i] / P->dp;
    P->dn_inverse = balanced(P->n_inverse, P->p);
    P->dn_last = balanced(product(P->n_inverse, iw[1], P), P->p);
    release(P->w), release(P->iw);
    P->w = P->iw = NULL;
    return 0;
}

static const Ops *ops_for(const char *cpu, int largest_bits) {
#ifdef HAVE_X86
    __builtin_cpu_init();
    int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (largest_bits <= 50 && strcmp(cpu, "baseline")) {
        if (avx512 && __builtin_cpu_supports("avx512ifma") && !strcmp(cpu, "ifma")) return &INTEGERS_52;
        if (avx512 && strcmp(cpu, "avx2")) return &doubles_avx512;
        if (avx2) return &doubles_avx2;
    }
#elif defined(HAVE_NEON)
    if (largest_bits <= 50 && strcmp(cpu, "baseline")) return &doubles_neon;
#else
    (void)cpu, (void)largest_bits;
#endif
    return &INTEGERS;
}

/* -- what is done with ciphertexts ---------------------------------------------------------------------------------------- */

typedef struct { /* polynomials handed out one after the other from memory that the caller keeps */
    word *next;
    size_t n;
} Scratch;

INLINE word *take(Scratch *s) {
    word *found = s->next;
    s->next += s->n;
    return found;
}

typedef struct { /* a component under `primes` primes: values in NTT form, and what is still to be subtracted, as coefficients */
    word *value[MAX_PRIMES];
    word *pending[MAX_PRIMES];
    int has_pending;
} Component;

static void take_component(Scratch *s, Component *c, int primes, int pending) {
    for (int i = 0; i < primes; i++) c->value[i] = take(s);
    for (int i = 0; i < pending; i++) c->pending[i] = take(s);
    c->has_pending = 0;
}

static void forward(const Ring *R, const Prime *P, word *buf, const word *src, word *out, int subtract) {
    R->ops->begin(P, buf, src);
    for (int part = 0; part < PARTS; part++) R->ops->finish(P, buf, out, part, subtract, NULL);
}

static void settle_pending(const Ring *R, Component *c, int primes) {
    if (c->has_pending)
        for (int i = 0; i < primes; i++) forward(R, &R->p[i], c->pending[i], c->pending[i], c->value[i], 1);
    c->has_pending = 0;
}

/* Divide by prime r, whose canonical coefficients are x, what lies under the primes before it: SEAL subtracts
   delta = x + q_r [-x / q_r]_t and divides, so that (c - delta) / q_r is c / q_r - (x / q_r + k). */
static void drop(const Ring *R, Component *c, int r, int primes, const word *x, Fold next) {
    R->ops->fold(&R->plain, R->minus_inv_t[r], R->p, R->inv[r], primes, c->pending, x, c->has_pending ? next : FIRST);
    c->has_pending = 1;
}

/* A component of a ciphertext under `from` primes, switched down to `to`; -1 if it is not reduced. */
static int load_component(const Ring *R, Component *c, const uint64_t *src, int from, int to, word *x) {
    uint64_t factor[MAX_PRIMES];
    size_t n = (size_t)R->n;
    c->has_pending = 0;
    for (int i = 0; i < from; i++) factor[i] = 1;
    for (int r = from - 1; r >= to; r--) {
        if (!reduced(&R->p[r], src + n * (size_t)r)) return -1;
        R->ops->inverse(&R->p[r], x, src + n * (size_t)r, 1);
        if (c->has_pending) R->ops->settle(&R->p[r], x, c->pending[r], factor[r]);
        drop(R, c, r, r, x, DROPPED);
        for (int i = 0; i < r; i++) factor[i] = product(factor[i], R->inv[r][i], &R->p[i]);
    }
    for (int i = 0; i < to; i++)
        if (R->ops->load(&R->p[i], c->value[i], src + n * (size_t)i, factor[i], 1)) return -1;
    return 0;
}

static void store_component(const Ring *R, Component *c, uint64_t *out, int from, int to, word *x) {
    uint64_t factor[MAX_PRIMES];
    for (int i = 0; i < from; i++) factor[i] = 1;
    for (int r = from - 1; r >= to; r--) {
        R->ops->inverse(&R->p[r], x, c->value[r], 0);
        if (c->has_pending) R->ops->settle(&R->p[r], x, c->pending[r], factor[r]);
        drop(R, c, r, r, x, DROPPED);
        for (int i = 0; i < r; i++) factor[i] = product(factor[i], R->inv[r][i], &R->p[i]);
    }
    if (from > to)
        for (int i = 0; i < to; i++) R->ops->scale(&R->p[i], c->value[i], factor[i]);
    settle_pending(R, c, to);
    for (int i = 0; i < to; i++) R->ops->store(&R->p[i], out + (size_t)R->n * (size_t)i, c->value[i], 1);
}

typedef struct { /* what a key switch works with */
    word *digit[MAX_PRIMES], *lifted[MAX_PRIMES];
    word *special[2];
} Switcher;

static void take_switcher(Scratch *s, Switcher *w, int primes) {
    for (int i = 0; i < primes; i++) w->digit[i] = take(s), w->lifted[i] = take(s);
    w->special[0] = take(s), w->special[1] = take(s);
}

/* Add what a key makes of digits under one of its targets, and subtract what is pending: all of it part by part, so that digits, key
   and sums meet in the nearest cache, and prime by prime, so that twiddles stay in the next one. */
static void switch_under(const Ring *R, const Key *key, int primes, int target, word *const *top, word *const *to, word *const *pending, Switcher *w) {
    const Ops *ops = R->ops;
    int special = target == primes;
    const Prime *P = &R->p[special ? R->primes : target];
    size_t row = 2 * APART(R->n);
    const word *keys = key->words + row * (size_t)key->digits * (size_t)(special ? key->digits : target);
    word *y[MAX_PRIMES];
    for (int j = 0; j < primes; j++) {
        y[j] = j == target ? top[j] : w->lifted[j];
        if (j != target) ops->begin(P, y[j], w->digit[j]);
    }
    for (int c = 0; c < 2; c++)
        if (pending[c]) ops->begin(P, pending[c], pending[c]);
    for (int part = 0; part < PARTS; part++) {
        const word *soon = keys + (size_t)(R->n / PARTS) * (size_t)part;
        for (int j = 0; j < primes; j++)
            if (j != target) ops->finish(P, y[j], y[j], part, 0, soon + row * (size_t)j);
        ops->accumulate(P, to[0], to[1], y, keys, primes, !special, part);
        for (int c = 0; c < 2; c++)
            if (pending[c]) ops->finish(P, pending[c], to[c], part, 1, NULL);
    }
}

/* Add to the components `to` what the key makes of `top`, which is in NTT form: SEAL's key switching, digit by digit, divided by the
   special prime. The key is divided by it already, under the data primes; the remainders become pending, or are settled `now`. */
static void key_switch(const Ring *R, const Key *key, int primes, word *const *top, Component *const *to, Switcher *w, const int *now) {
    static word *const NOTHING[2];
    for (int j = 0; j < primes; j++) R->ops->inverse(&R->p[j], w->digit[j], top[j], 0);
    switch_under(R, key, primes, primes, top, w->special, NOTHING, w);
    for (int c = 0; c < 2; c++) {
        R->ops->inverse(&R->p[R->primes], w->special[c], w->special[c], 0);
        drop(R, to[c], R->primes, primes, w->special[c], SPECIAL);
    }
    for (int i = 0; i < primes; i++) {
        word *const value[2] = {to[0]->value[i], to[1]->value[i]};
        word *const pending[2] = {now[0] ? to[0]->pending[i] : NULL, now[1] ? to[1]->pending[i] : NULL};
        switch_under(R, key, primes, i, top, value, pending, w);
    }
    for (int c = 0; c < 2; c++) to[c]->has_pending &= !now[c];
}

static size_t lower_polynomials(int primes) { return 9 * (size_t)primes + 8; }

/* Switched from `from` primes to `at`, relinearised there if there is a key, and switched to `to`. The top component c_k counts
   for s^(k-2) (c_k s^2): the key for s^2 turns it into parts of the components k-2 and k-1, and so on downwards. -1 if a residue is not
   below its prime. */
static int lower(const Ring *R, const Key *key, const uint64_t *src, int size, int from, int at, int to, uint64_t *out, word *memory) {
    Scratch s = {memory, APART(R->n)};
    Component slot[3]; /* component c lives in slot c modulo 3 */
    Switcher w;
    size_t n = (size_t)R->n;
    word *x = take(&s);
    for (int i = 0; i < 3; i++) take_component(&s, &slot[i], at, from);
    if (!key || size == 2) {
        for (int c = 0; c < size; c++) {
            if (load_component(R, &slot[0], src + n * (size_t)(c * from), from, at, x)) return -1;
            store_component(R, &slot[0], out + n * (size_t)(c * to), at, to, x);
        }
        return 0;
    }
    take_switcher(&s, &w, at);
    int loaded = size; /* components from here on are loaded */
    for (int c = size - 1; c >= 2; c--) {
        for (; loaded > c - 2; loaded--)
            if (load_component(R, &slot[(loaded - 1) % 3], src + n * (size_t)((loaded - 1) * from), from, at, x)) return -1;
        settle_pending(R, &slot[c % 3], at);
        Component *const next[2] = {&slot[(c - 2) % 3], &slot[(c - 1) % 3]};
        const int now[2] = {c == 2 && at == to, c > 2 || at == to}; /* what nothing more is added to, nor divided */
        key_switch(R, key, at, slot[c % 3].value, next, &w, now);
    }
    for (int c = 0; c < 2; c++) store_component(R, &slot[c], out + n * (size_t)(c * to), at, to, x);
    return 0;
}

typedef struct {
    const Ring *ring;
    int primes;
    int lowest;
    int wrong; /* a residue was not below its prime */
    uint64_t scale[MAX_PRIMES]; /* what is multiplied by when it is read */
    Key *keys[MAX_LOG][2]; /* by level, from 1; the second one may be NULL */
    const uint64_t **src;
    Component minus[2], between[2];
    Component odd[MAX_LOG][2];
    Switcher switcher;
} Packer;

static size_t pack_polynomials(int primes, int levels) { return (size_t)primes * (2 * (size_t)levels + 2 + 4 + 4 + 3) + 8; }

/* `to` (+)= the automorphism of `from`, switched back to the secret key. `moved` are polynomials to work in: those of from[0] may
   be, and are lost then. */
static void automorphism(Packer *K, const Key *key, const Component *from, word *const *moved, Component *to, int add) {
    const Ring *R = K->ring;
    for (int i = 0; i < K->primes; i++) {
        R->ops->permute(&R->p[i], to[0].value[i], from[0].value[i], key->table, add);
        R->ops->permute(&R->p[i], moved[i], from[1].value[i], key->table, 0);
        if (!add) memset(to[1].value[i], 0, 8 * (size_t)R->n); /* all bits zero is 0 as a double, too */
    }
    key_switch(R, key, K->primes, moved, (Component *const[2]){&to[0], &to[1]}, &K->switcher, (const int[2]){1, 1});
}

/* Every level multiplies by 2: what has so many of them to go is divided by all that when it is read. */
static void take_scale(Packer *K, int levels) {
    for (int i = 0; i < K->primes; i++) {
        const Prime *P = &K->ring->p[i];
        K->scale[i] = levels ? power((uint64_t)1 << levels, P->p - 2, P) : 1;
    }
}

static int load_pair(const Packer *K, Component *to, const uint64_t *src) {
    const Ring *R = K->ring;
    int wrong = 0;
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < K->primes; i++, src += R->n) wrong |= R->ops->load(&R->p[i], to[c].value[i], src, K->scale[i], 1);
    return wrong;
}

static void store_pair(const Packer *K, uint64_t *out, const Component *from) {
    const Ring *R = K->ring;
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < K->primes; i++, out += R->n) R->ops->store(&R->p[i], out, from[c].value[i], 1);
}

/* `node` becomes node + s(node), and `odd`, unless it is NULL, (node - s(node)) / X^h, with the automorphism s of the level. */
static void part(Packer *K, Component *node, Component *odd, int level) {
    const Ring *R = K->ring;
    Key **keys = K->keys[level];
    Component *moved = K->between;
    automorphism(K, keys[0], node, K->minus[0].value, moved, 0);
    if (keys[1]) {
        automorphism(K, keys[1], moved, moved[0].value, K->minus, 0);
        moved = K->minus;
    }
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < K->primes; i++)
            R->ops->split(&R->p[i], node[c].value[i], odd ? odd[c].value[i] : NULL, moved[c].value[i], level);
}

static size_t at_most(size_t count, size_t limit) { return count < limit ? count : limit; }

/* The first half of the places goes to the even ones, and so on within: only one node of a level can be without a partner.
   The automorphism clears the places that its partner's totals would have. */
static void pack(Packer *K, size_t first, size_t count, int level, Component *to) {
    const Ring *R = K->ring;
    if (level == K->lowest) {
        K->wrong |= load_pair(K, to, K->src[first]);
        return;
    }
    size_t half = (size_t)1 << (level - 1 - K->lowest);
    pack(K, first, at_most(count, half), level - 1, to);
    if (count <= half) {
        part(K, to, NULL, level);
        return;
    }
    Component *odd = K->odd[level];
    pack(K, first + half, count - half, level - 1, odd);
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < K->primes; i++)
            R->ops->butterfly(&R->p[i], to[c].value[i], K->minus[c].value[i], odd[c].value[i], level);
    Key **keys = K->keys[level];
    if (!keys[1]) {
        automorphism(K, keys[0], K->minus, K->minus[0].value, to, 1);
        return;
    }
    automorphism(K, keys[0], K->minus, K->minus[0].value, K->between, 0);
    automorphism(K, keys[1], K->between, K->between[0].value, to, 1);
}

/* The inverse: `node` holds `count` totals at the multiples of X^h, and 0 between them. It becomes the node of the first half of
   the places, and what is left, brought to the multiples of X^(2h), that of the others. Nodes of level `lowest` go to out[first],
   out[first + step], ... */
static void expand(Packer *K, Component *node, size_t first, size_t step, size_t count, int level, uint64_t *out) {
    const Ring *R = K->ring;
    if (level == K->lowest) {
        store_pair(K, out + 2 * (size_t)K->primes * (size_t)R->n * first, node);
        return;
    }
    size_t half = (size_t)1 << (level - 1);
    Component *odd = count > half ? K->odd[level] : NULL;
    part(K, node, odd, level);
    expand(K, node, first, step, at_most(count, half), level - 1, out);
    if (odd) expand(K, odd, first + (step << (level - 1 - K->lowest)), step, count - half, level - 1, out);
}

/* Memory for merging or splitting from level `lowest` to `level`; pending polynomials are never in use at the same time. */
static void take_packer(Scratch *s, Packer *K, Component *to, int level) {
    int primes = K->primes;
    for (int c = 0; c < 2; c++) {
        take_component(s, &to[c], primes, primes);
        take_component(s, &K->minus[c], primes, 0);
        take_component(s, &K->between[c], primes, 0);
        memcpy(K->minus[c].pending, to[c].pending, sizeof to[c].pending);
        memcpy(K->between[c].pending, to[c].pending, sizeof to[c].pending);
        for (int l = K->lowest + 1; l <= level; l++) {
            take_component(s, &K->odd[l][c], primes, 0);
            memcpy(K->odd[l][c].pending, to[c].pending, sizeof to[c].pending);
        }
    }
    take_switcher(s, &K->switcher, primes);
}

/* -- Python --------------------------------------------------------------------------------------------------------------- */

static void free_ring(PyObject *capsule) {
    Ring *R = PyCapsule_GetPointer(capsule, "ring");
    if (!R) return;
    for (int i = 0; i <= R->primes; i++) free_prime(&R->p[i]);
    free(R);
}

static void free_key(PyObject *capsule) {
    Key *key = PyCapsule_GetPointer(capsule, "key");
    if (!key) return;
    Py_DECREF(key->ring);
    release(key->words), release(key->table), free(key);
}

/* The key in a capsule, for this ring alone. */
static Key *key_of(PyObject *capsule, PyObject *ring) {
    Key *key = PyCapsule_GetPointer(capsule, "key");
    if (!key || key->ring == ring) return key;
    PyErr_SetString(PyExc_ValueError, "a key of another ring");
    return NULL;
}

static int needs(const Py_buffer *b, size_t words, const char *what) {
    if ((size_t)b->len != 8 * words)
        PyErr_Format(PyExc_ValueError, "%s has %zd bytes where %zu are needed", what, b->len, 8 * words);
    else if ((uintptr_t)b->buf % 8)
        PyErr_Format(PyExc_ValueError, "%s does not begin at a whole word", what);
    else
        return 0;
    return -1;
}

static PyObject *py_ring(PyObject *self, PyObject *args) {
    int n;
    Py_buffer moduli, roots;
    unsigned long long t;
    const char *cpu;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*y*Ks", &n, &moduli, &roots, &t, &cpu)) return NULL;
    PyObject *found = NULL;
    Ring *R = calloc(1, sizeof(Ring));
    int count = (int)(moduli.len / 8), logn = 0, largest = 0, failed = 0;
    const uint64_t *p = moduli.buf, *root = roots.buf;
    while (logn < MAX_LOG && 1 << logn < n) logn++;
    if (!R) {
        PyErr_NoMemory();
        goto end;
    }
    if (needs(&moduli, (size_t)count, "moduli") || needs(&roots, (size_t)count, "roots")) {
        free(R);
        goto end;
    }
    if (n < 64 * PARTS || 1 << logn != n || logn >= MAX_LOG || count < 2 || count > MAX_PRIMES || t < 2) {
        PyErr_SetString(PyExc_ValueError, "no such ring");
        free(R);
        goto end;
    }
    R->n = n, R->logn = logn, R->primes = count - 1, R->t = t;
    for (int i = 0; i < count; i++) {
        if (p[i] <= t || p[i] >> 60 || root[i] >= p[i]) {
            PyErr_SetString(PyExc_ValueError, "primes must be larger than t and below 2**60");
            free(R);
            goto end;
        }
        set_modulus(&R->p[i], p[i], n, logn);
        if (R->p[i].bits > largest) largest = R->p[i].bits;
    }
    set_modulus(&R->plain, t, n, logn);
    R->ops = ops_for(cpu, largest);
    for (int i = 0; i < count && !failed; i++) failed = set_tables(&R->p[i], root[i], R->ops->form, largest);
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < count - 1; i++) R->inv[r][i] = power(p[r], p[i] - 2, &R->p[i]);
        R->minus_inv_t[r] = t - power(p[r], t - 2, &R->plain); /* t is prime, and no inverse is 0 */
    }
    found = failed ? PyErr_NoMemory() : PyCapsule_New(R, "ring", free_ring);
    if (!found) {
        for (int i = 0; i < count; i++) free_prime(&R->p[i]);
        free(R);
    }
end:
    PyBuffer_Release(&moduli), PyBuffer_Release(&roots);
    return found;
}

/* Where the automorphism X -> X^element finds what it puts at each place: it takes the value at one root to another. In bit-reversed
   order, neighbours are values at w, -w, and so on, which it takes to neighbours, since it is odd. */
static void read_table(const Ring *R, uint32_t *table, uint64_t element) {
    const uint8_t *held = R->ops->held;
    uint8_t place[16];
    for (uint8_t i = 0; i < 16; i++) place[held ? held[i] : i] = i;
    for (uint32_t i = 0; i < (uint32_t)R->n; i++) {
        uint32_t value = held ? (i & ~15u) + held[i & 15] : i;
        uint64_t exponent = element * (2 * (uint64_t)reversed(value, R->logn) + 1) & (2 * (uint64_t)R->n - 1);
        uint32_t from = reversed((uint32_t)(exponent >> 1), R->logn);
        table[i] = (from & ~15u) + place[from & 15];
    }
}

static PyObject *py_key(PyObject *self, PyObject *args) {
    PyObject *ring;
    Py_buffer src;
    int digits, element;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oy*ii", &ring, &src, &digits, &element)) return NULL;
    Ring *R = PyCapsule_GetPointer(ring, "ring");
    PyObject *found = NULL;
    Key *key = NULL;
    if (!R) goto end;
    if (digits < 1 || digits > R->primes) {
        PyErr_SetString(PyExc_ValueError, "no such number of digits");
        goto end;
    }
    size_t n = (size_t)R->n, polynomials = 2 * (size_t)digits * (size_t)(digits + 1);
    if (needs(&src, polynomials * n, "a key")) goto end;
    key = calloc(1, sizeof(Key));
    if (key) key->words = aligned(8 * polynomials * APART(n));
    if (key && element) key->table = aligned(4 * n);
    if (!key || !key->words || (element && !key->table)) {
        PyErr_NoMemory();
        goto end;
    }
    key->digits = digits;
    /* from SEAL's order (digit, part, prime) to (prime, digit, part); divided by the special prime under the others */
    for (int target = 0; target <= digits; target++) {
        int prime = target == digits ? R->primes : target;
        uint64_t factor = target == digits ? 1 : R->inv[R->primes][target];
        if (R->ops->form == WORDS_52) factor = product(factor, any_below(1ull << 52, &R->p[prime]), &R->p[prime]);
        for (int part = 0; part < 2 * digits; part++) {
            const uint64_t *from = (const uint64_t *)src.buf + n * (size_t)(part * (digits + 1) + target);
            word *to = key->words + APART(n) * (size_t)(target * 2 * digits + part);
            if (R->ops->load(&R->p[prime], to, from, factor, 1)) {
                PyErr_SetString(PyExc_ValueError, "a key has residues that are not below their prime");
                goto end;
            }
        }
    }
    if (key->table) read_table(R, key->table, (uint64_t)element);
    found = PyCapsule_New(key, "key", free_key);
    if (found) key->ring = Py_NewRef(ring);
end:
    if (!found && key) release(key->words), release(key->table), free(key);
    PyBuffer_Release(&src);
    return found;
}

static PyObject *py_scratch(PyObject *self, PyObject *args) {
    PyObject *ring;
    int primes, levels;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oii", &ring, &primes, &levels)) return NULL;
    Ring *R = PyCapsule_GetPointer(ring, "ring");
    if (!R) return NULL;
    if (primes < 1 || primes > R->primes || levels < 0 || levels > R->logn) {
        PyErr_SetString(PyExc_ValueError, "no such number of primes or levels");
        return NULL;
    }
    size_t a = lower_polynomials(primes), b = pack_polynomials(primes, levels);
    return PyLong_FromSize_t((levels ? b : a) * APART(R->n));
}

static word *memory_of(const Py_buffer *scratch, size_t words) {
    size_t misaligned = (size_t)(-(intptr_t)scratch->buf & 63);
    if ((size_t)scratch->len < misaligned + 8 * words) {
        PyErr_SetString(PyExc_ValueError, "not enough scratch memory");
        return NULL;
    }
    return (word *)((char *)scratch->buf + misaligned);
}

static PyObject *py_lower(PyObject *self, PyObject *args) {
    PyObject *ring, *key_or_none, *found = NULL;
    Py_buffer src, out, scratch;
    int size, from, at, to, good = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOy*iiiiw*w*", &ring, &key_or_none, &src, &size, &from, &at, &to, &out, &scratch)) return NULL;
    Ring *R = PyCapsule_GetPointer(ring, "ring");
    Key *key = key_or_none == Py_None ? NULL : key_of(key_or_none, ring);
    if (!R || (key_or_none != Py_None && !key)) goto end;
    if (size < 2 || size > 4096 || to < 1 || to > at || at > from || from > R->primes || (key && key->digits < at)) {
        PyErr_SetString(PyExc_ValueError, "no such size or level");
        goto end;
    }
    size_t n = (size_t)R->n;
    word *memory = memory_of(&scratch, lower_polynomials(from) * APART(n));
    if (!memory || needs(&src, n * (size_t)(size * from), "a ciphertext") ||
        needs(&out, n * (size_t)((key ? 2 : size) * to), "the result"))
        goto end;
    Py_BEGIN_ALLOW_THREADS;
    good = !lower(R, key, src.buf, size, from, at, to, out.buf, memory);
    Py_END_ALLOW_THREADS;
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "a ciphertext has residues that are not below their prime");
        goto end;
    }
    found = Py_NewRef(Py_None);
end:
    PyBuffer_Release(&src), PyBuffer_Release(&out), PyBuffer_Release(&scratch);
    return found;
}

/* The automorphism keys of levels 1 to `level`, from a tuple of tuples. */
static int read_keys(Packer *K, PyObject *ring, PyObject *groups, int level, int primes) {
    for (int l = 1; l <= level; l++) {
        PyObject *group = PyTuple_GetItem(groups, l - 1);
        Py_ssize_t members = PyTuple_Check(group) ? PyTuple_Size(group) : 0;
        if (members < 1 || members > 2) {
            PyErr_SetString(PyExc_ValueError, "each level needs one or two keys");
            return -1;
        }
        for (Py_ssize_t i = 0; i < members; i++) {
            Key *key = key_of(PyTuple_GetItem(group, i), ring);
            if (!key) return -1;
            if (!key->table || key->digits < primes) {
                PyErr_SetString(PyExc_ValueError, "a key that is not one of an automorphism under these primes");
                return -1;
            }
            K->keys[l][i] = key;
        }
    }
    return 0;
}

/* Totals merged from level `lowest` up to `level`; `whole` ones have not been merged before. */
static PyObject *py_pack(PyObject *self, PyObject *args) {
    PyObject *ring, *groups, *totals, *found = NULL;
    Py_buffer out, scratch, *held = NULL;
    int primes, level, lowest, whole;
    Py_ssize_t count, holding = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!O!iiipw*w*", &ring, &PyTuple_Type, &groups, &PyTuple_Type, &totals, &primes, &level, &lowest,
                          &whole, &out, &scratch))
        return NULL;
    Packer *K = calloc(1, sizeof(Packer));
    Ring *R = PyCapsule_GetPointer(ring, "ring");
    if (!R) goto end;
    count = PyTuple_Size(totals);
    if (primes < 1 || primes > R->primes || lowest < 0 || level < lowest || level > R->logn || PyTuple_Size(groups) < level ||
        count < 1 || count > (Py_ssize_t)1 << (level - lowest)) {
        PyErr_SetString(PyExc_ValueError, "no such pack");
        goto end;
    }
    held = calloc((size_t)count, sizeof *held);
    if (K) K->src = calloc((size_t)count, sizeof *K->src);
    if (!K || !K->src || !held) {
        PyErr_NoMemory();
        goto end;
    }
    if (read_keys(K, ring, groups, level, primes)) goto end;
    size_t n = (size_t)R->n, each = 2 * n * (size_t)primes;
    word *memory = memory_of(&scratch, pack_polynomials(primes, level - lowest) * APART(n));
    if (!memory || needs(&out, each, "the result")) goto end;
    for (; holding < count; holding++) {
        if (PyObject_GetBuffer(PyTuple_GetItem(totals, holding), &held[holding], PyBUF_C_CONTIGUOUS)) goto end;
        K->src[holding] = held[holding].buf;
        if (needs(&held[holding], each, "a total")) {
            holding++;
            goto end;
        }
    }
    Py_BEGIN_ALLOW_THREADS;
    Scratch s = {memory, APART(n)};
    Component to[2];
    K->ring = R, K->primes = primes, K->lowest = lowest;
    take_packer(&s, K, to, level);
    take_scale(K, whole ? R->logn - lowest : 0);
    pack(K, 0, (size_t)count, level, to);
    store_pair(K, out.buf, to);
    Py_END_ALLOW_THREADS;
    if (K->wrong) {
        PyErr_SetString(PyExc_ValueError, "a ciphertext has residues that are not below their prime");
        goto end;
    }
    found = Py_NewRef(Py_None);
end:
    while (holding > 0) PyBuffer_Release(&held[--holding]);
    if (K) free(K->src);
    free(held), free(K);
    PyBuffer_Release(&out), PyBuffer_Release(&scratch);
    return found;
}

/* A node of `count` totals split from `level` down to `lowest`, on the way to `start`: the nodes go to out[first], out[first + step], ..., where `src` may
   lie as well. */
static PyObject *py_expand(PyObject *self, PyObject *args) {
    PyObject *ring, *groups, *found = NULL;
    Py_buffer src, out, scratch;
    int primes, level, lowest, start, good = 0;
    Py_ssize_t count, first, step;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!y*i(iii)nw*nnw*", &ring, &PyTuple_Type, &groups, &src, &primes, &level, &lowest, &start, &count,
                          &out, &first, &step, &scratch))
        return NULL;
    Packer *K = calloc(1, sizeof(Packer));
    Ring *R = PyCapsule_GetPointer(ring, "ring");
    if (!R) goto end;
    if (!K) {
        PyErr_NoMemory();
        goto end;
    }
    if (primes < 1 || primes > R->primes || lowest < 0 || level < lowest || level > R->logn || PyTuple_Size(groups) < level ||
        start < 0 || start > lowest || count < 1 || count > (Py_ssize_t)1 << level) {
        PyErr_SetString(PyExc_ValueError, "no such node");
        goto end;
    }
    size_t n = (size_t)R->n, each = 2 * n * (size_t)primes;
    Py_ssize_t nodes = ((count - 1) >> lowest) + 1, places = out.len / (Py_ssize_t)(8 * each);
    if (first < 0 || step < 1 || first >= places || (places - 1 - first) / step < nodes - 1) {
        PyErr_SetString(PyExc_ValueError, "no place for so many nodes");
        goto end;
    }
    word *memory = memory_of(&scratch, pack_polynomials(primes, level - lowest) * APART(n));
    if (!memory || needs(&src, each, "a ciphertext") || read_keys(K, ring, groups, level, primes)) goto end;
    Py_BEGIN_ALLOW_THREADS;
    Scratch s = {memory, APART(n)};
    Component node[2];
    K->ring = R, K->primes = primes, K->lowest = lowest;
    take_packer(&s, K, node, level);
    take_scale(K, level == R->logn ? level - start : 0);
    good = !load_pair(K, node, src.buf);
    if (good) expand(K, node, (size_t)first, (size_t)step, (size_t)count, level, out.buf);
    Py_END_ALLOW_THREADS;
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "a ciphertext has residues that are not below their prime");
        goto end;
    }
    found = Py_NewRef(Py_None);
end:
    free(K);
    PyBuffer_Release(&src), PyBuffer_Release(&out), PyBuffer_Release(&scratch);
    return found;
}

/* SEAL's apply_galois: one automorphism of a ciphertext of size 2. */
static PyObject *py_automorphism(PyObject *self, PyObject *args) {
    PyObject *ring, *capsule, *found = NULL;
    Py_buffer src, out, scratch;
    int primes, good = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOy*iw*w*", &ring, &capsule, &src, &primes, &out, &scratch)) return NULL;
    Packer *K = calloc(1, sizeof(Packer));
    Ring *R = PyCapsule_GetPointer(ring, "ring");
    Key *key = R ? key_of(capsule, ring) : NULL;
    if (!R || !key) goto end;
    if (!K) {
        PyErr_NoMemory();
        goto end;
    }
    if (primes < 1 || primes > key->digits || !key->table) {
        PyErr_SetString(PyExc_ValueError, "a key that is not one of an automorphism under these primes");
        goto end;
    }
    size_t n = (size_t)R->n, each = 2 * n * (size_t)primes;
    word *memory = memory_of(&scratch, pack_polynomials(primes, 1) * APART(n));
    if (!memory || needs(&src, each, "a ciphertext") || needs(&out, each, "the result")) goto end;
    Py_BEGIN_ALLOW_THREADS;
    Scratch s = {memory, APART(n)};
    Component from[2];
    K->ring = R, K->primes = primes;
    take_packer(&s, K, from, 0);
    take_scale(K, 0);
    good = !load_pair(K, from, src.buf);
    if (good) {
        automorphism(K, key, from, from[0].value, K->between, 0);
        store_pair(K, out.buf, K->between);
    }
    Py_END_ALLOW_THREADS;
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "a ciphertext has residues that are not below their prime");
        goto end;
    }
    found = Py_NewRef(Py_None);
end:
    free(K);
    PyBuffer_Release(&src), PyBuffer_Release(&out), PyBuffer_Release(&scratch);
    return found;
}

/* Products with plaintexts, added up: sum of src_j plain_j, of ciphertexts of size 2 under the first primes. A plaintext is n
   coefficients modulo t, lifted as SEAL lifts them: to the integers nearest to 0. */
typedef struct {
    const uint64_t *src, *plain;
} Masked;

enum { MOST_MASKED = 4096 }; /* products of two numbers of 60 bits that add up in 128 bits, less than so many */

static int masked(const Ring *R, int primes, const Masked *terms, size_t count, uint64_t *out, word *memory) {
    size_t n = (size_t)R->n;
    unsigned __int128 *sums = (unsigned __int128 *)memory;
    word *spectrum = memory + 4 * n;
    uint64_t *values = (uint64_t *)(spectrum + n), t = R->t;
    for (int i = 0; i < primes; i++) {
        const Prime *P = &R->p[i];
        uint64_t p = P->p, carry = (uint64_t)(((unsigned __int128)1 << 64) % p);
        memset(sums, 0, 2 * n * sizeof *sums);
        for (size_t j = 0; j < count; j++) {
            const uint64_t *plain = terms[j].plain, *at = terms[j].src + (size_t)i * n;
            uint64_t wrong = 0;
            for (size_t x = 0; x < n; x++) {
                wrong |= (plain[x] >= t) | (at[x] >= p) | (at[(size_t)primes * n + x] >= p);
                values[x] = plain[x] > t / 2 ? plain[x] + (p - t) : plain[x];
            }
            if (wrong) return 0;
            R->ops->load(P, spectrum, values, 1, 0);
            forward(R, P, spectrum, spectrum, spectrum, 0);
            R->ops->store(P, values, spectrum, 1);
            for (int c = 0; c < 2; c++, at += (size_t)primes * n)
                for (size_t x = 0; x < n; x++) sums[(size_t)c * n + x] += (unsigned __int128)values[x] * at[x];
        }
        for (int c = 0; c < 2; c++)
            for (size_t x = 0; x < n; x++) {
                unsigned __int128 sum = sums[(size_t)c * n + x];
                uint64_t high = (uint64_t)(sum >> 64) % p, low = (uint64_t)sum % p;
                uint64_t more = (uint64_t)((unsigned __int128)high * carry % p);
                out[((size_t)c * (size_t)primes + (size_t)i) * n + x] = (low + more) % p;
            }
    }
    return 1;
}

static PyObject *py_masked(PyObject *self, PyObject *args) {
    PyObject *ring, *given[2], *found = NULL;
    Py_buffer out, scratch, *held = NULL;
    Masked *terms = NULL;
    int primes, good = 0;
    Py_ssize_t holding = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OiO!O!w*w*", &ring, &primes, &PyTuple_Type, &given[0], &PyTuple_Type, &given[1], &out, &scratch))
        return NULL;
    Ring *R = PyCapsule_GetPointer(ring, "ring");
    if (!R) goto end;
    Py_ssize_t count = PyTuple_Size(given[0]);
    if (primes < 1 || primes > R->primes || count < 1 || count >= MOST_MASKED || PyTuple_Size(given[1]) != count) {
        PyErr_SetString(PyExc_ValueError, "no such products");
        goto end;
    }
    size_t n = (size_t)R->n, each = 2 * n * (size_t)primes;
    held = calloc(2 * (size_t)count, sizeof *held), terms = calloc((size_t)count, sizeof *terms);
    if (!held || !terms) {
        PyErr_NoMemory();
        goto end;
    }
    word *memory = memory_of(&scratch, 6 * n);
    if (!memory || needs(&out, each, "the result")) goto end;
    for (; holding < 2 * count; holding++) {
        Py_buffer *view = &held[holding];
        if (PyObject_GetBuffer(PyTuple_GetItem(given[holding % 2], holding / 2), view, PyBUF_C_CONTIGUOUS)) goto end;
        if (needs(view, holding % 2 ? n : each, holding % 2 ? "a plaintext" : "a ciphertext")) {
            holding++;
            goto end;
        }
        *(holding % 2 ? &terms[holding / 2].plain : &terms[holding / 2].src) = view->buf;
    }
    Py_BEGIN_ALLOW_THREADS;
    good = masked(R, primes, terms, (size_t)count, out.buf, memory);
    Py_END_ALLOW_THREADS;
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "a ciphertext or a plaintext has residues that are not below their prime");
        goto end;
    }
    found = Py_NewRef(Py_None);
end:
    while (holding > 0) PyBuffer_Release(&held[--holding]);
    free(held), free(terms);
    PyBuffer_Release(&out), PyBuffer_Release(&scratch);
    return found;
}

/* Transforms of some polynomials, to NTT form or back: for tests, and to be measured. */
static PyObject *py_transform(PyObject *self, PyObject *args) {
    PyObject *ring, *found = NULL;
    Py_buffer src, out, scratch;
    int prime, inverse;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oiiy*w*w*", &ring, &prime, &inverse, &src, &out, &scratch)) return NULL;
    Ring *R = PyCapsule_GetPointer(ring, "ring");
    if (!R) goto end;
    if (prime < 0 || prime > R->primes) {
        PyErr_SetString(PyExc_ValueError, "no such prime");
        goto end;
    }
    size_t n = (size_t)R->n, count = (size_t)src.len / (8 * n);
    word *memory = memory_of(&scratch, n);
    if (!memory || needs(&src, count * n, "polynomials") || needs(&out, count * n, "the result")) goto end;
    const Prime *P = &R->p[prime];
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (size_t i = 0; i < count && good; i++) {
        const uint64_t *from = (const uint64_t *)src.buf + i * n;
        if (inverse) {
            good = reduced(P, from);
            R->ops->inverse(P, memory, from, 1);
        } else {
            good = !R->ops->load(P, memory, from, 1, 0);
            forward(R, P, memory, memory, memory, 0);
        }
        R->ops->store(P, (uint64_t *)out.buf + i * n, memory, !inverse);
    }
    Py_END_ALLOW_THREADS;
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "a polynomial has residues that are not below their prime");
        goto end;
    }
    found = Py_NewRef(Py_None);
end:
    PyBuffer_Release(&src), PyBuffer_Release(&out), PyBuffer_Release(&scratch);
    return found;
}

static PyObject *py_way(PyObject *self, PyObject *ring) {
    (void)self;
    Ring *R = PyCapsule_GetPointer(ring, "ring");
    return R ? PyUnicode_FromString(R->ops->name) : NULL;
}

static PyMethodDef METHODS[] = {
    {"ring", py_ring, METH_VARARGS, "ring(n, moduli, roots, t, cpu): tables for these primes, the key-switching prime last."},
    {"key", py_key, METH_VARARGS, "key(ring, residues, digits, element): a key-switching key; element 0 without automorphism."},
    {"scratch", py_scratch, METH_VARARGS, "scratch(ring, primes, levels): words of memory for lower (levels 0), or pack and expand."},
    {"lower", py_lower, METH_VARARGS, "lower(ring, key, src, size, from, at, to, out, scratch)"},
    {"pack", py_pack, METH_VARARGS, "pack(ring, keys, totals, primes, level, lowest, whole, out, scratch)"},
    {"expand", py_expand, METH_VARARGS, "expand(ring, keys, src, primes, (level, lowest, start), count, out, first, step, scratch)"},
    {"automorphism", py_automorphism, METH_VARARGS, "automorphism(ring, key, src, primes, out, scratch)"},
    {"masked", py_masked, METH_VARARGS, "masked(ring, primes, ciphertexts, plaintexts, out, scratch): their products, added up."},
    {"transform", py_transform, METH_VARARGS, "transform(ring, prime, inverse, src, out, scratch)"},
    {"way", py_way, METH_O, "way(ring): how this ring computes: integers, avx2, avx512 or ifma."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_residues", "Kernels on the residues of BGV ciphertexts.", -1, METHODS,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__residues(void) { return PyModule_Create(&MODULE); }

#else /* LANES: doubles, this many at a time ============================================================================== */

/* The integer nearest to a b, which is below 2^51: beside 3 * 2^51, nothing of it is left behind the point. */
#define NEAREST(a, b) SUB(FMADD(a, b, ALL(0x1.8p52)), ALL(0x1.8p52))

/* x w - q p: h + l is the exact product, and what is left is exact. */
TARGET INLINE vec NAME(rest)(vec x, vec w, vec h, vec q, vec p) { return ADD(FNMADD(q, p, h), FMSUB(x, w, h)); }

/* A product modulo p: its quotient q is right up to 1/2 and a small error. */
TARGET INLINE vec NAME(product)(vec x, vec w, vec p, vec pinv) {
    vec h = MUL(x, w);
    return NAME(rest)(x, w, h, NEAREST(h, pinv), p);
}

/* The same with the quotient of a known factor: q does not wait for the product. */
TARGET INLINE vec NAME(known_product)(vec x, vec w, vec wq, vec p) { return NAME(rest)(x, w, MUL(x, w), NEAREST(x, wq), p); }

TARGET INLINE vec NAME(near)(vec x, vec p, vec pinv) { return FNMADD(NEAREST(x, pinv), p, x); }

/* For anything; a product, which is between -p and p, needs ADD_IF_NEGATIVE alone. */
TARGET INLINE vec NAME(canonical)(vec x, vec p, vec pinv) { return ADD_IF_NEGATIVE(NAME(near)(x, p, pinv), p); }

#define MODULUS(P) vec p = ALL((P)->dp), pinv = ALL((P)->pinv)
#define EACH(P) for (int i = 0; i < (P)->n; i += LANES)

TARGET static int NAME(load)(const Prime *P, word *dst, const uint64_t *src, uint64_t factor, int values) {
    (void)values;
    MODULUS(P);
    vec f = ALL(balanced(factor, P->p));
    EACH(P) STORE(&dst[i], NAME(product)(SUB(FROM_BITS(&src[i]), ALL(0x1p52)), f, p, pinv));
    return !reduced(P, src);
}

TARGET static void NAME(scale)(const Prime *P, word *a, uint64_t factor) {
    MODULUS(P);
    vec f = ALL(balanced(factor, P->p));
    EACH(P) STORE(&a[i], NAME(product)(LOAD(&a[i]), f, p, pinv));
}

TARGET static void NAME(store)(const Prime *P, uint64_t *dst, const word *a, int values) {
    (void)values;
    MODULUS(P);
    EACH(P) TO_BITS(&dst[i], ADD(NAME(canonical)(LOAD(&a[i]), p, pinv), ALL(0x1p52)));
}

TARGET static void NAME(settle)(const Prime *P, word *a, const word *pending, uint64_t factor) {
    MODULUS(P);
    vec f = ALL(balanced(factor, P->p));
    EACH(P) STORE(&a[i], NAME(canonical)(SUB(NAME(product)(LOAD(&a[i]), f, p, pinv), LOAD(&pending[i])), p, pinv));
}

TARGET INLINE void NAME(fold_loosely)(const Prime *plain, uint64_t plain_factor, const Prime *primes, const uint64_t *factors, const int count, word *const *d, const word *x, const Fold how, const int loose) {
    vec t = ALL(plain->dp), tinv = ALL(plain->pinv), g = ALL(balanced(plain_factor, plain->p)), f[MAX_PRIMES];
    for (int j = 0; j < count; j++) f[j] = ALL(balanced(factors[j], primes[j].p));
    EACH(plain) {
        vec from = LOAD(&x[i]), k = ADD_IF_NEGATIVE(NAME(product)(from, g, t, tinv), t);
        for (int j = 0; j < count; j++) {
            MODULUS(&primes[j]);
            vec v = how == DROPPED ? ADD(from, LOAD(&d[j][i])) : from;
            v = ADD(NAME(product)(v, f[j], p, pinv), k);
            if (!loose) v = NAME(near)(v, p, pinv);
            STORE(&d[j][i], how == SPECIAL ? NAME(near)(ADD(LOAD(&d[j][i]), v), p, pinv) : v);
        }
    }
}

TARGET INLINE void NAME(fold_with)(const Prime *plain, uint64_t plain_factor, const Prime *primes, const uint64_t *factors, const int count, word *const *d, const word *x, const Fold how) {
    int loose = 1;
    for (int j = 0; j < count; j++) loose &= primes[j].loose;
    if (loose) NAME(fold_loosely)(plain, plain_factor, primes, factors, count, d, x, how, 1);
    else NAME(fold_loosely)(plain, plain_factor, primes, factors, count, d, x, how, 0);
}

TARGET static void NAME(fold)(const Prime *plain, uint64_t plain_factor, const Prime *primes, const uint64_t *factors, int count, word *const *d, const word *x, Fold how) {
    FOLD_WITH_CONSTANTS(NAME(fold_with));
}

TARGET INLINE void NAME(accumulate_some)(const Prime *P, word *a0, word *a1, word *const *y, const word *keys, const int count, int add, int part) {
    MODULUS(P);
    size_t n = APART(P->n);
    IN_PART(P, part, LANES) {
        vec s0 = add ? LOAD(&a0[i]) : ALL(0.0), s1 = add ? LOAD(&a1[i]) : ALL(0.0);
        for (int j = 0; j < count; j++) {
            const word *k = keys + 2 * n * (size_t)j + i;
            vec v = LOAD(&y[j][i]);
            s0 = ADD(s0, NAME(product)(v, LOAD(k), p, pinv));
            s1 = ADD(s1, NAME(product)(v, LOAD(k + n), p, pinv));
        }
        STORE(&a0[i], NAME(near)(s0, p, pinv));
        STORE(&a1[i], NAME(near)(s1, p, pinv));
    }
}

TARGET static void NAME(accumulate)(const Prime *P, word *a0, word *a1, word *const *y, const word *keys, int count, int add, int part) {
    if (count == 1)
        NAME(accumulate_some)(P, a0, a1, y, keys, 1, add, part);
    else if (count == 2)
        NAME(accumulate_some)(P, a0, a1, y, keys, 2, add, part);
    else
        for (int j = 0; j < count; j += 4) /* a few at a time, lest the sum grows */
            NAME(accumulate_some)(P, a0, a1, y + j, keys + 2 * APART(P->n) * (size_t)j, count - j < 4 ? count - j : 4, add || j, part);
}

/* Plus and minus the twiddles in turns, each for a run of 2^logh, from coefficient i on. */
TARGET INLINE vec NAME(runs)(const double *w, int logh, int i) {
    double factor[LANES];
    if (1 << logh >= LANES) {
        int run = i >> logh;
        return ALL(run & 1 ? -w[run / 2] : w[run / 2]);
    }
    for (int lane = 0; lane < LANES; lane++) {
        int run = (i + lane) >> logh;
        factor[lane] = run & 1 ? -w[run / 2] : w[run / 2];
    }
    return LOAD(factor);
}

TARGET static void NAME(butterfly)(const Prime *P, word *even, word *minus, const word *odd, int level) {
    MODULUS(P);
    const double *w = P->dw + (1 << (level - 1));
    EACH(P) {
        vec s = NAME(product)(LOAD(&odd[i]), NAME(runs)(w, P->logn - level, i), p, pinv), e = LOAD(&even[i]);
        STORE(&even[i], NAME(near)(ADD(e, s), p, pinv));
        STORE(&minus[i], NAME(near)(SUB(e, s), p, pinv));
    }
}

TARGET static void NAME(split)(const Prime *P, word *even, word *odd, const word *moved, int level) {
    MODULUS(P);
    const double *w = P->diw + (1 << (level - 1));
    EACH(P) {
        vec e = LOAD(&even[i]), m = LOAD(&moved[i]);
        STORE(&even[i], NAME(near)(ADD(e, m), p, pinv));
        if (odd) STORE(&odd[i], NAME(product)(SUB(e, m), NAME(runs)(w, P->logn - level, i), p, pinv));
    }
}

TARGET static void NAME(permute)(const Prime *P, word *dst, const word *src, const uint32_t *table, int add) {
    MODULUS(P);
    EACH(P) {
        double moved[LANES];
        for (int lane = 0; lane < LANES; lane++) moved[lane] = src[table[i + lane]].d;
        vec v = LOAD(moved);
        STORE(&dst[i], add ? NAME(near)(ADD(LOAD(&dst[i]), v), p, pinv) : v);
    }
}

/* Shuffles for the stages inside a vector. A pair of vectors holds two blocks; each stage wants first halves in u, second halves
   in v, and the order is chosen so that twiddles come in their natural order, each repeated. */
#if LANES == 8
#define TAIL 3
#else
#define TAIL 2
#endif

#define FORWARD(x, y, w)                                       \
    do {                                                       \
        vec turned = NAME(known_product)(y, w, w##q, p);       \
        y = SUB(x, turned);                                    \
        x = ADD(x, turned);                                    \
    } while (0)

#define BACKWARD(x, y, w, reduce)                              \
    do {                                                       \
        vec difference = SUB(x, y);                            \
        x = ADD(x, y);                                         \
        if (reduce) x = NAME(near)(x, p, pinv);                \
        y = NAME(known_product)(difference, w, w##q, p);       \
    } while (0)

/* The vector `f` of twiddles that a function makes of those from `at` on, and `fq` of their quotients. */
#define TWIDDLES(f, function, at) vec f = function(w + (at)), f##q = function(wq + (at))
#define ALL_OF(w) ALL(*(w))

TARGET INLINE void NAME(forward_four)(double *a, const double *src, int quarter, const double *w, const double *wq, size_t node, vec p, vec pinv, const int reduce, const int reduce_all) {
    TWIDDLES(w1, ALL_OF, node); TWIDDLES(w2, ALL_OF, 2 * node); TWIDDLES(w3, ALL_OF, 2 * node + 1);
    for (int i = 0; i < quarter; i += LANES) {
        vec x0 = LOAD(src + i), x1 = LOAD(src + i + quarter), x2 = LOAD(src + i + 2 * quarter), x3 = LOAD(src + i + 3 * quarter);
        if (reduce || reduce_all) x0 = NAME(near)(x0, p, pinv), x1 = NAME(near)(x1, p, pinv);
        if (reduce_all) x2 = NAME(near)(x2, p, pinv), x3 = NAME(near)(x3, p, pinv);
        FORWARD(x0, x2, w1);
        FORWARD(x1, x3, w1);
        FORWARD(x0, x1, w2);
        FORWARD(x2, x3, w3);
        STORE(a + i, x0), STORE(a + i + quarter, x1), STORE(a + i + 2 * quarter, x2), STORE(a + i + 3 * quarter, x3);
    }
}

/* The stages inside vectors, on blocks of LANES coefficients that begin at `node` in the order of the twiddles. */
TARGET INLINE void NAME(forward_tail)(const double *a, double *out, int length, const double *w, const double *wq, size_t node, vec p, vec pinv, int subtract, const int loose, const word *soon, size_t n) {
    for (int i = 0; i < length; i += 2 * LANES, node += 2) {
        if (soon)
            for (int j = 0; j < 2 * LANES; j += 8) SOON(soon + i + j), SOON(soon + n + i + j);
        vec x = LOAD(a + i), y = LOAD(a + i + LANES);
        vec u = HALVES_U(x, y), v = HALVES_V(x, y);
#if LANES == 8
        TWIDDLES(w1, REPEAT_4, node); TWIDDLES(w2, REPEAT_2, 2 * node); TWIDDLES(w3, LOAD, 4 * node);
        FORWARD(u, v, w1);
        x = QUARTERS_U(u, v), y = QUARTERS_V(u, v);
        FORWARD(x, y, w2);
        u = EVENS(x, y), v = ODDS(x, y);
        FORWARD(u, v, w3);
        x = WOVEN_A(u, v), y = WOVEN_B(u, v);
#else
        TWIDDLES(w1, REPEAT_2, node); TWIDDLES(w2, LOAD, 2 * node);
        FORWARD(u, v, w1);
        x = EVENS(u, v), y = ODDS(u, v);
        FORWARD(x, y, w2);
        u = EVENS(x, y), v = ODDS(x, y);
        x = HALVES_U(u, v), y = HALVES_V(u, v);
#endif
        if (subtract) x = SUB(LOAD(out + i), x), y = SUB(LOAD(out + i + LANES), y);
        if (!loose) x = NAME(near)(x, p, pinv), y = NAME(near)(y, p, pinv);
        STORE(out + i, x), STORE(out + i + LANES, y);
    }
}

TARGET INLINE void NAME(begin_with)(const Prime *P, double *a, const double *src, const int tight, const int loose) {
    MODULUS(P);
    int quarter = P->n / 4;
    NAME(forward_four)(a, src, quarter, P->dw, P->dwq, 1, p, pinv, 0, !loose);
    for (size_t part = 0; part < 4; part++) {
        double *b = a + part * (size_t)quarter;
        NAME(forward_four)(b, b, quarter / 4, P->dw, P->dwq, 4 + part, p, pinv, tight, 0);
    }
}

TARGET static void NAME(begin)(const Prime *P, word *buf, const word *src) {
    if (P->loose)
        NAME(begin_with)(P, &buf->d, &src->d, 0, 1);
    else if (P->tight_forward)
        NAME(begin_with)(P, &buf->d, &src->d, 1, 0);
    else
        NAME(begin_with)(P, &buf->d, &src->d, 0, 0);
}

TARGET INLINE void NAME(finish_with)(const Prime *P, double *a, double *out, int part, int subtract, const int tight, const int loose, const word *soon) {
    MODULUS(P);
    const double *w = P->dw, *wq = P->dwq;
    int each = P->n / PARTS, length = each, left = P->logn - 4 - TAIL;
    size_t node = PARTS + (size_t)part, blocks = 1, first = (size_t)part * (size_t)each;
    double *b = a + first;
    if (left & 1) {
        TWIDDLES(w1, ALL_OF, node);
        for (int i = 0; i < length / 2; i += LANES) {
            vec x = LOAD(b + i), y = LOAD(b + i + length / 2);
            if (tight) x = NAME(near)(x, p, pinv);
            FORWARD(x, y, w1);
            STORE(b + i, x), STORE(b + i + length / 2, y);
        }
        node *= 2, blocks *= 2, length /= 2, left--;
    }
    for (; left; left -= 2, node *= 4, blocks *= 4, length /= 4)
        for (size_t block = 0; block < blocks; block++) {
            double *c = b + block * (size_t)length;
            NAME(forward_four)(c, c, length / 4, w, wq, node + block, p, pinv, tight, 0);
        }
    NAME(forward_tail)(b, out + first, each, w, wq, node, p, pinv, subtract, loose, soon, APART(P->n));
}

TARGET static void NAME(finish)(const Prime *P, word *buf, word *out, int part, int subtract, const word *soon) {
    if (P->loose && !subtract)
        NAME(finish_with)(P, &buf->d, &out->d, part, 0, 0, 1, soon);
    else if (P->tight_forward)
        NAME(finish_with)(P, &buf->d, &out->d, part, subtract, 1, 0, soon);
    else
        NAME(finish_with)(P, &buf->d, &out->d, part, subtract, 0, 0, soon);
}

TARGET INLINE void NAME(inverse_head)(double *a, const double *src, int raw, int length, const double *w, const double *wq, size_t node, vec p, vec pinv, const int tight) {
    for (int i = 0; i < length; i += 2 * LANES, node += 2) {
        vec x, y, u, v;
        if (raw)
            x = SUB(FROM_BITS(src + i), ALL(0x1p52)), y = SUB(FROM_BITS(src + i + LANES), ALL(0x1p52));
        else
            x = LOAD(src + i), y = LOAD(src + i + LANES);
#if LANES == 8
        u = UNWOVEN_U(x, y), v = UNWOVEN_V(x, y);
        TWIDDLES(w1, REPEAT_4, node); TWIDDLES(w2, REPEAT_2, 2 * node); TWIDDLES(w3, LOAD, 4 * node);
        BACKWARD(u, v, w3, tight);
        x = EVENS(u, v), y = ODDS(u, v);
        BACKWARD(x, y, w2, tight);
        u = QUARTERS_U(x, y), v = QUARTERS_V(x, y);
        BACKWARD(u, v, w1, 1);
        x = HALVES_U(u, v), y = HALVES_V(u, v);
#else
        u = HALVES_U(x, y), v = HALVES_V(x, y);
        x = EVENS(u, v), y = ODDS(u, v);
        TWIDDLES(w1, REPEAT_2, node); TWIDDLES(w2, LOAD, 2 * node);
        BACKWARD(x, y, w2, tight);
        u = EVENS(x, y), v = ODDS(x, y);
        BACKWARD(u, v, w1, 1);
        x = HALVES_U(u, v), y = HALVES_V(u, v);
#endif
        STORE(a + i, x), STORE(a + i + LANES, y);
    }
}

TARGET INLINE void NAME(inverse_four)(double *a, int quarter, const double *w, const double *wq, size_t node, vec p, vec pinv, const int tight) {
    TWIDDLES(w1, ALL_OF, node); TWIDDLES(w2, ALL_OF, 2 * node); TWIDDLES(w3, ALL_OF, 2 * node + 1);
    for (int i = 0; i < quarter; i += LANES) {
        vec x0 = LOAD(a + i), x1 = LOAD(a + i + quarter), x2 = LOAD(a + i + 2 * quarter), x3 = LOAD(a + i + 3 * quarter);
        BACKWARD(x0, x1, w2, tight);
        BACKWARD(x2, x3, w3, tight);
        BACKWARD(x0, x2, w1, 1);
        BACKWARD(x1, x3, w1, tight);
        STORE(a + i, x0), STORE(a + i + quarter, x1), STORE(a + i + 2 * quarter, x2), STORE(a + i + 3 * quarter, x3);
    }
}

/* The last two stages, divided by n and made canonical. */
TARGET INLINE void NAME(inverse_last)(const Prime *P, double *a, vec p, vec pinv, const int tight) {
    int quarter = P->n / 4;
    const double *w = P->diw, *wq = P->diwq;
    vec w1 = ALL(P->dn_last), w1q = ALL(P->dn_last / P->dp), scale = ALL(P->dn_inverse), scaleq = ALL(P->dn_inverse / P->dp);
    TWIDDLES(w2, ALL_OF, 2); TWIDDLES(w3, ALL_OF, 3);
    for (int i = 0; i < quarter; i += LANES) {
        vec x0 = LOAD(a + i), x1 = LOAD(a + i + quarter), x2 = LOAD(a + i + 2 * quarter), x3 = LOAD(a + i + 3 * quarter);
        BACKWARD(x0, x1, w2, tight);
        BACKWARD(x2, x3, w3, tight);
        BACKWARD(x0, x2, w1, tight);
        BACKWARD(x1, x3, w1, tight);
        x0 = NAME(known_product)(x0, scale, scaleq, p), x1 = NAME(known_product)(x1, scale, scaleq, p);
        STORE(a + i, ADD_IF_NEGATIVE(x0, p)), STORE(a + i + quarter, ADD_IF_NEGATIVE(x1, p));
        STORE(a + i + 2 * quarter, ADD_IF_NEGATIVE(x2, p)), STORE(a + i + 3 * quarter, ADD_IF_NEGATIVE(x3, p));
    }
}

TARGET INLINE void NAME(inverse_with)(const Prime *P, double *a, const double *src, int raw, const int tight) {
    MODULUS(P);
    const double *w = P->diw, *wq = P->diwq;
    int quarter = P->n / 4;
    for (size_t part = 0; part < 4; part++) {
        double *b = a + part * (size_t)quarter;
        int left = P->logn - 2 - TAIL, length = LANES, blocks = quarter / LANES;
        size_t node = (size_t)(P->n / LANES) / 4 * (4 + part); /* of the first block */
        NAME(inverse_head)(b, src + part * (size_t)quarter, raw, quarter, w, wq, node, p, pinv, tight);
        for (; left > 1; left -= 2) {
            node /= 4, blocks /= 4, length *= 4;
            for (int block = 0; block < blocks; block++)
                NAME(inverse_four)(b + (size_t)block * (size_t)length, length / 4, w, wq, node + (size_t)block, p, pinv, tight);
        }
        if (left) {
            TWIDDLES(w1, ALL_OF, 4 + part);
            for (int i = 0; i < quarter / 2; i += LANES) {
                vec x = LOAD(b + i), y = LOAD(b + i + quarter / 2);
                BACKWARD(x, y, w1, 1);
                STORE(b + i, x), STORE(b + i + quarter / 2, y);
            }
        }
    }
    NAME(inverse_last)(P, a, p, pinv, tight);
}

TARGET static void NAME(inverse)(const Prime *P, word *dst, const void *src, int raw) {
    if (P->tight_inverse)
        NAME(inverse_with)(P, &dst->d, src, raw, 1);
    else
        NAME(inverse_with)(P, &dst->d, src, raw, 0);
}

static const Ops NAME(doubles) = {WAY, DOUBLES, NULL,
    NAME(load),   NAME(scale),     NAME(store), NAME(inverse),    NAME(begin),     NAME(finish),
    NAME(settle), NAME(fold), NAME(accumulate), NAME(butterfly), NAME(split),  NAME(permute),
};

#undef LANES
#undef TARGET
#undef NAME
#undef WAY
#undef vec
#undef LOAD
#undef STORE
#undef ALL
#undef ADD
#undef SUB
#undef MUL
#undef FMADD
#undef FMSUB
#undef FNMADD
#undef ADD_IF_NEGATIVE
#undef FROM_BITS
#undef TO_BITS
#undef MODULUS
#undef EACH
#undef SHUFFLE
#undef HALVES_U
#undef HALVES_V
#undef QUARTERS_U
#undef QUARTERS_V
#undef EVENS
#undef ODDS
#undef WOVEN_A
#undef WOVEN_B
#undef UNWOVEN_U
#undef UNWOVEN_V
#undef REPEAT_2
#undef REPEAT_4
#undef TAIL
#undef NEAREST
#undef TWIDDLES
#undef ALL_OF
#undef FORWARD
#undef BACKWARD
#endif
