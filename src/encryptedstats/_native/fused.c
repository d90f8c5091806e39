/* The fused evaluator: sums over rows of polynomials in BGV ciphertexts, as streaming arithmetic modulo primes below 2^50.
 *
 * A ciphertext in NTT form is multiplied coefficient by coefficient, so a whole circuit can be computed for a short block of
 * coefficients of one prime at a time, with everything between the columns and the sums in the first levels of cache. What is to
 * be done is a tape of integers that circuits/fused.py writes; every kernel works on vectors of one block:
 *
 *     for each block:  prologue: load and check the columns of all chunks, and what many sums share
 *                      for each segment of totals: for each chunk: the tape of the segment, into local accumulators;
 *                                                  then the local accumulators into those in memory
 *
 * Three kinds of arithmetic give the same residues; the best that the processor has is chosen when the program runs:
 *
 *     ifma      unsigned integers in [0, p), products in 104 bits by vpmadd52, one Montgomery reduction (R = 2^52) for a whole sum
 *               of products; the tape keeps one factor of every product multiplied by R
 *     avx512,   doubles in about [-p/2, p/2]: h = a b and l = fma(a, b, -h) are the exact product, and with c = rint(h / p)
 *     avx2      fma(-c, p, h) + l is an integer below 2^53, hence exact. Never to be compiled with -ffast-math
 *     baseline  unsigned integers, sums of products in 128 bits, Barrett reduction: any processor
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define X86 1
#define ARM 0
#include <immintrin.h>
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#define X86 0
#define ARM 1
#include <arm_neon.h>
#else
#define X86 0
#define ARM 0
#endif

#define INLINE static inline __attribute__((always_inline))

typedef unsigned __int128 u128;

enum { LOAD, LINEAR, PRODUCT, ADD };                     /* what the tape can say */
enum { PLUS = -1, MINUS = -2 };                          /* coefficients that are no constants */
#if X86
enum { BASELINE, AVX2, AVX512, IFMA, LEVELS };           /* in order of speed */
#elif ARM
enum { BASELINE, NEON, LEVELS };
#else
enum { BASELINE, LEVELS };
#endif
enum { MAX_SIZE = 16, MAX_BLOCK = 4096, MAX_TERMS_AT_ONCE = 12 };
#if X86
static const char *const LEVEL_NAMES[LEVELS] = {"baseline", "avx2", "avx512", "ifma"};
#elif ARM
static const char *const LEVEL_NAMES[LEVELS] = {"baseline", "neon"};
#else
static const char *const LEVEL_NAMES[LEVELS] = {"baseline"};
#endif

/* One prime, and the block that is worked on. Scratch vectors are `stride` words apart and computed up to `n`, a multiple of 8:
 * what lies behind the last coefficient of a short block is computed with the rest, and never written out. */
typedef struct {
    uint64_t p;
    uint64_t inverse52;     /* of p modulo 2^52 */
    uint64_t barrett;       /* floor(2^(63 + bits) / p) */
    int bits;
    double pd, inverse;     /* p and 1/p */
    const uint64_t *constants;
    Py_ssize_t stride, n;
} Field;

typedef struct {
    int32_t coefficient; /* PLUS, MINUS or an index of a constant */
    int32_t size;
    const void *from;
} Term;

/* Where a sum lies, how far its components are apart, and what is done with what is there: added to it; written over it; written
 * over it in memory, past the cache. With the last chunk, the sum goes to memory at once (`out`): over what is there, past the
 * cache, or added to it. */
typedef struct {
    void *at;
    Py_ssize_t apart;
    enum { MORE, FIRST, STREAM, LAST, LAST_MORE } how;
    uint64_t *out;
    Py_ssize_t out_apart;
} Sum;

/* A root and seven factors at a point, chunks `apart` words apart; and where the sums go, NULL for none: of the root, and of its products with
 * the factors. Factor i of the inside of factor k is number 2 k, that of its outside 2 k + 1. */
typedef struct {
    const void *from[8];
    void *to[8];
    Py_ssize_t apart;
} Branch;

/* Components are found from values at the first of these points: numerators times values, divided by the denominator. */
enum { MAX_POINTS = 5, MAX_CHUNKS_AT_POINTS = 256 };
static const int POINTS[MAX_POINTS] = {0, 1, -1, 2, -2};
typedef struct {
    int denominator, numerators[MAX_POINTS];
} Weights;
static const Weights WEIGHTS[MAX_POINTS + 1][MAX_POINTS] = {
    [1] = {{1, {1}}},
    [2] = {{1, {1}}, {1, {-1, 1}}},
    [3] = {{1, {1}}, {2, {0, 1, -1}}, {2, {-2, 1, 1}}},
    [4] = {{1, {1}}, {6, {-3, 6, -2, -1}}, {2, {-2, 1, 1}}, {6, {3, -3, -1, 1}}},
    [5] = {{1, {1}}, {12, {0, 8, -8, -1, 1}}, {24, {-30, 16, 16, -1, -1}}, {12, {0, -2, 2, 1, -1}}, {24, {6, -4, -4, 1, 1}}},
};

typedef struct {
    /* A column's block to a vector; 1 if a residue is not below p. Behind `count` come zeros. */
    int (*load)(const Field *, void *to, const uint64_t *from, Py_ssize_t count);
    void (*linear)(const Field *, void *to, int size, const Term *, int n_terms, const uint64_t *constant);
    /* to = a b; rest = a - a b; sum += a b. Those that are NULL are not wanted. */
    void (*product)(const Field *, void *to, void *rest, Sum, const void *a, int na, const void *b, int nb);
    void (*add)(const Field *, Sum, const void *from, int size);
    /* Local sums to residues in memory: stored if first, else added. Components are `apart` words apart there. */
    void (*flush)(const Field *, uint64_t *to, Py_ssize_t apart, int first, const void *sum, int size, Py_ssize_t count);
    int streams; /* whether sums can be written to memory straight away */
    /* A vector of two components at a point, where polynomials are numbers; all sums of a tree of products of such; and what sums at
     * several points say about `size` components, which go to memory as with `flush`. NULL: there is nothing for it. */
    void (*at_point)(const Field *, void *to, const void *from, int point);
    void (*branching)(const Field *, const Branch *, Py_ssize_t n_chunks);
    void (*interpolate)(const Field *, uint64_t *to, Py_ssize_t apart, int first, const void *values, int size, Py_ssize_t count);
} Machine;

INLINE int at_least(int a, int b) { return a > b ? a : b; }
INLINE int at_most(int a, int b) { return a < b ? a : b; }

/* -- integers without any help from the processor --------------------------------------------------------------------------- */

INLINE uint64_t reduced128(const Field *f, u128 x)
{
    /* x < 2^(2 bits + 4): the quotient is too small by at most 2. */
    uint64_t q = (uint64_t)(((u128)(uint64_t)(x >> (f->bits - 1)) * f->barrett) >> 64);
    uint64_t r = (uint64_t)x - q * f->p;
    r -= r >= f->p ? f->p : 0;
    return r - (r >= f->p ? f->p : 0);
}

INLINE uint64_t plus(uint64_t p, uint64_t a, uint64_t b) { return a + b >= p ? a + b - p : a + b; }
INLINE uint64_t minus(uint64_t p, uint64_t a, uint64_t b) { return a >= b ? a - b : a + p - b; }

static int baseline_load(const Field *f, void *to, const uint64_t *from, Py_ssize_t count)
{
    uint64_t *out = to, worst = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        worst |= from[i] >= f->p;
        out[i] = from[i];
    }
    for (Py_ssize_t i = count; i < f->n; i++) out[i] = 0;
    return worst != 0;
}

static void baseline_linear(const Field *f, void *to, int size, const Term *terms, int n_terms, const uint64_t *constant)
{
    uint64_t p = f->p;
    for (int k = 0; k < size; k++) {
        uint64_t *out = (uint64_t *)to + k * f->stride;
        uint64_t begin = k == 0 && constant ? *constant : 0;
        for (Py_ssize_t i = 0; i < f->n; i++) {
            uint64_t sum = begin;
            for (int t = 0; t < n_terms; t++) {
                if (k >= terms[t].size) continue;
                uint64_t x = ((const uint64_t *)terms[t].from)[k * f->stride + i];
                if (terms[t].coefficient == PLUS) sum = plus(p, sum, x);
                else if (terms[t].coefficient == MINUS) sum = minus(p, sum, x);
                else sum = plus(p, sum, reduced128(f, (u128)x * f->constants[terms[t].coefficient]));
            }
            out[i] = sum;
        }
    }
}

INLINE u128 wide(uint64_t a, uint64_t b) { return (u128)a * b; }

/* One component of a product: out = sum of x[j] y[k - j] for low <= j <= high. Mostly there are one or two of them. */
static void baseline_component(const Field *field, uint64_t *restrict out, const uint64_t *x, const uint64_t *y, int k, int low, int high)
{
    const Field f = *field; /* a copy, which no write to a vector can change */
    const uint64_t *restrict a = x + low * f.stride, *restrict b = y + (k - low) * f.stride;
    const uint64_t *restrict c = a + f.stride, *restrict d = b - f.stride;
    if (high == low)
        for (Py_ssize_t i = 0; i < f.n; i++) out[i] = reduced128(&f, wide(a[i], b[i]));
    else if (high == low + 1)
        for (Py_ssize_t i = 0; i < f.n; i++) out[i] = reduced128(&f, wide(a[i], b[i]) + wide(c[i], d[i]));
    else
        for (Py_ssize_t i = 0; i < f.n; i++) {
            u128 total = wide(a[i], b[i]);
            for (int j = low + 1; j <= high; j++) total += wide(x[j * f.stride + i], y[(k - j) * f.stride + i]);
            out[i] = reduced128(&f, total);
        }
}

static void baseline_product(const Field *f, void *to, void *rest, Sum sum, const void *a, int na, const void *b, int nb)
{
    uint64_t spare[MAX_BLOCK], p = f->p;
    for (int k = 0; k < na + nb - 1; k++) {
        uint64_t *restrict out = to ? (uint64_t *)to + k * f->stride : spare;
        baseline_component(f, out, a, b, k, at_least(0, k - nb + 1), at_most(k, na - 1));
        if (rest) {
            uint64_t *restrict left = (uint64_t *)rest + k * f->stride;
            const uint64_t *restrict whole = (const uint64_t *)a + k * f->stride;
            for (Py_ssize_t i = 0, n = f->n; i < n; i++) left[i] = minus(p, k < na ? whole[i] : 0, out[i]);
        }
        if (sum.at) {
            uint64_t *restrict all = (uint64_t *)sum.at + k * sum.apart;
            if (sum.how == MORE)
                for (Py_ssize_t i = 0, n = f->n; i < n; i++) all[i] = plus(p, all[i], out[i]);
            else memcpy(all, out, f->n * sizeof(uint64_t));
        }
    }
}

static void baseline_add(const Field *f, Sum sum, const void *from, int size)
{
    for (int k = 0; k < size; k++) {
        uint64_t *all = (uint64_t *)sum.at + k * sum.apart;
        const uint64_t *x = (const uint64_t *)from + k * f->stride;
        for (Py_ssize_t i = 0; i < f->n; i++) all[i] = sum.how == MORE ? plus(f->p, all[i], x[i]) : x[i];
    }
}

static void baseline_flush(const Field *f, uint64_t *to, Py_ssize_t apart, int first, const void *sum, int size, Py_ssize_t count)
{
    for (int k = 0; k < size; k++) {
        const uint64_t *x = (const uint64_t *)sum + k * f->stride;
        uint64_t *out = to + k * apart;
        for (Py_ssize_t i = 0; i < count; i++) out[i] = first ? x[i] : plus(f->p, out[i], x[i]);
    }
}

static const Machine BASELINE_MACHINE = {baseline_load, baseline_linear, baseline_product, baseline_add, baseline_flush, 0, NULL, NULL, NULL};

#if X86 || ARM

/* How many last products of a tree are added up before they are reduced. */
INLINE Py_ssize_t chunks_at_once(int bits) { return bits < 47 ? 16 : (Py_ssize_t)1 << (50 - bits); }

/* 1/d modulo p, for a small d: m p + 1 is divided by it for one of the first m. */
static uint64_t inverse_of_small(uint64_t p, int d)
{
    uint64_t multiple = 1;
    while (multiple % (uint64_t)d) multiple += p;
    return multiple / (uint64_t)d % p;
}

/* -- doubles, several at a time: written so that compilers vectorise it ------------------------------------------------------- */

/* Between -p/2 and p/2, but for rounding: exact, for integers |x| < 2^53. */
INLINE double centred(double p, double inverse, double x) { return __builtin_fma(-__builtin_rint(x * inverse), p, x); }

/* The product modulo p of integers |a|, |b| <= 0.51 p, as an integer below 0.62 p: the quotient c is at most p/4 and wrong by
 * less than 0.57, |l| is at most p/32. Exact: h, c p and l are integers, and so is what is left of them, below 2^53. */
INLINE double product_of(double p, double inverse, double a, double b)
{
    double h = a * b, l = __builtin_fma(a, b, -h);
    return __builtin_fma(-__builtin_rint(h * inverse), p, h) + l;
}

#define MAGIC 4503599627370496.0 /* 2^52: below it, adding makes the last bits of a double those of an integer */
typedef uint64_t __attribute__((may_alias)) Bits;

INLINE double double_of(uint64_t x)
{
    union { uint64_t bits; double value; } u = {x | 0x4330000000000000u};
    return u.value - MAGIC;
}

INLINE uint64_t integer_of(double x)
{
    union { double value; uint64_t bits; } u = {x + MAGIC};
    return u.bits & 0x000fffffffffffffu;
}

INLINE double constant_of(const Field *f, int index) { return centred(f->pd, f->inverse, (double)f->constants[index]); }

INLINE int doubles_load(const Field *f, void *to, const uint64_t *from, Py_ssize_t count)
{
    double *restrict out = to;
    double p = f->pd, inverse = f->inverse;
    uint64_t limit = f->p, worst = 0;
    for (Py_ssize_t i = 0; i < count; i += 8) __builtin_prefetch(from + i + f->stride, 0, 2); /* the next block: no stream that hardware sees */
    for (Py_ssize_t i = 0; i < count; i++) {
        /* The sign bits tell: x >= 2^63, or x >= p. */
        worst |= from[i] | (limit - 1 - from[i]);
        double x = double_of(from[i] & 0x000fffffffffffffu);
        out[i] = centred(p, inverse, x);
    }
    for (Py_ssize_t i = count; i < f->n; i++) out[i] = 0;
    return (worst >> 63) != 0;
}

INLINE int is_plain(const Term *term, int k) { return term->coefficient == PLUS && k < term->size; }

/* Four terms in one pass: with one pass for each, memory takes longer than arithmetic. */
INLINE void doubles_four(const Field *f, double *restrict out, const Term *terms, Py_ssize_t at)
{
    const double *restrict x = (const double *)terms[0].from + at, *restrict y = (const double *)terms[1].from + at;
    const double *restrict v = (const double *)terms[2].from + at, *restrict w = (const double *)terms[3].from + at;
    for (Py_ssize_t i = 0, n = f->n; i < n; i++) out[i] += (x[i] + y[i]) + (v[i] + w[i]);
}

INLINE void doubles_linear(const Field *f, void *to, int size, const Term *terms, int n_terms, const uint64_t *constant)
{
    double p = f->pd, inverse = f->inverse;
    for (int k = 0; k < size; k++) {
        double *restrict out = (double *)to + k * f->stride;
        double begin = k == 0 && constant ? centred(p, inverse, (double)*constant) : 0;
        int pending = 1; /* terms of up to 0.62 p since the last reduction, or loose ones of less than 4 p where p < 2^44 */
        for (Py_ssize_t i = 0; i < f->n; i++) out[i] = begin;
        for (int t = 0; t < n_terms; t++) {
            if (k >= terms[t].size) continue;
            const double *restrict x = (const double *)terms[t].from + k * f->stride;
            if (pending + 4 <= MAX_TERMS_AT_ONCE && t + 4 <= n_terms && is_plain(terms + t, k) && is_plain(terms + t + 1, k)
                && is_plain(terms + t + 2, k) && is_plain(terms + t + 3, k)) {
                doubles_four(f, out, terms + t, k * f->stride);
                t += 3, pending += 4;
                continue;
            }
            if (pending++ == MAX_TERMS_AT_ONCE) {
                for (Py_ssize_t i = 0; i < f->n; i++) out[i] = centred(p, inverse, out[i]);
                pending = 2;
            }
            if (terms[t].coefficient == PLUS)
                for (Py_ssize_t i = 0; i < f->n; i++) out[i] += x[i];
            else if (terms[t].coefficient == MINUS)
                for (Py_ssize_t i = 0; i < f->n; i++) out[i] -= x[i];
            else {
                double c = constant_of(f, terms[t].coefficient);
                for (Py_ssize_t i = 0; i < f->n; i++) out[i] += product_of(p, inverse, x[i], c);
            }
        }
        for (Py_ssize_t i = 0; i < f->n; i++) out[i] = centred(p, inverse, out[i]);
    }
}

/* Loops over plain pointers and one counter: with more in them, compilers do not see that they can be vectorised. Loose results are
 * sums of products as they come, which other loops centre later. */
INLINE void doubles_one(const Field *f, double *restrict out, const double *restrict x, const double *restrict y, const int loose)
{
    double p = f->pd, inverse = f->inverse;
    for (Py_ssize_t i = 0, n = f->n; i < n; i++) {
        double r = product_of(p, inverse, x[i], y[i]);
        out[i] = loose ? r : centred(p, inverse, r);
    }
}

INLINE void doubles_two(
    const Field *f, double *restrict out, const double *restrict x, const double *restrict y, const double *restrict v,
    const double *restrict w, const int loose)
{
    double p = f->pd, inverse = f->inverse;
    for (Py_ssize_t i = 0, n = f->n; i < n; i++) {
        double r = product_of(p, inverse, x[i], y[i]) + product_of(p, inverse, v[i], w[i]);
        out[i] = loose ? r : centred(p, inverse, r);
    }
}

INLINE void doubles_more(const Field *f, double *restrict out, const double *restrict x, const double *restrict y)
{
    double p = f->pd, inverse = f->inverse;
    for (Py_ssize_t i = 0, n = f->n; i < n; i++) out[i] = centred(p, inverse, out[i] + product_of(p, inverse, x[i], y[i]));
}

INLINE void doubles_rest(const Field *f, double *restrict rest, const double *restrict whole, const double *restrict part, int loose)
{
    double p = f->pd, inverse = f->inverse;
    if (whole && loose)
        for (Py_ssize_t i = 0, n = f->n; i < n; i++) rest[i] = whole[i] - part[i];
    else if (whole)
        for (Py_ssize_t i = 0, n = f->n; i < n; i++) rest[i] = centred(p, inverse, whole[i] - part[i]);
    else
        for (Py_ssize_t i = 0, n = f->n; i < n; i++) rest[i] = -part[i];
}

/* At most 16 chunks are added up before they are flushed: integers of up to (p + 1) / 2 give no more than 2^53, and loose ones, which
 * are below 4 p with p < 2^44 and 2 p with p < 2^47, no more than 2^52. */
INLINE void doubles_sum(const Field *f, Sum sum, int k, const double *restrict x)
{
    double *restrict all = (double *)sum.at + k * sum.apart;
    if (sum.how == MORE)
        for (Py_ssize_t i = 0, n = f->n; i < n; i++) all[i] += x[i];
    else memcpy(all, x, f->n * sizeof(double));
}

/* What is added up alone is loose for p < 2^47: two products are below 1.2 p. For p < 2^44, so is what is multiplied again by centred
 * factors of size 2, at most three times, as sizes tell: what is left over after three splits is below 4 p. Products of two such
 * vectors have quotients below 2^49, wrong by less than 1, and are below p. */
INLINE void doubles_product(
    const Field *f, double *to, double *rest, Sum sum, const double *a, int na, const double *b, int nb, double *spare)
{
    Py_ssize_t s = f->stride;
    int loose = 2 <= na && na <= 4 && nb == 2 && f->bits <= (to || rest ? 44 : 47), stays = !to && sum.at && sum.how != MORE;
    for (int k = 0; k < na + nb - 1; k++) {
        int low = at_least(0, k - nb + 1), high = at_most(k, na - 1);
        double *out = to ? to + k * s : stays ? (double *)sum.at + k * sum.apart : spare;
        const double *x = a + low * s, *y = b + (k - low) * s;
        if (low == high && loose) doubles_one(f, out, x, y, 1);
        else if (low == high) doubles_one(f, out, x, y, 0);
        else if (loose) doubles_two(f, out, x, y, x + s, y - s, 1);
        else doubles_two(f, out, x, y, x + s, y - s, 0);
        for (int j = low + 2; j <= high; j++) doubles_more(f, out, a + j * s, b + (k - j) * s);
        if (rest) doubles_rest(f, rest + k * s, k < na ? a + k * s : NULL, out, loose);
        if (sum.at && !stays) doubles_sum(f, sum, k, out);
    }
}

INLINE void doubles_add(const Field *f, Sum sum, const void *from, int size)
{
    for (int k = 0; k < size; k++) doubles_sum(f, sum, k, (const double *)from + k * f->stride);
}

/* Residues to memory past the cache: what is written for the first time need neither be read before nor kept after. */
INLINE void write_past_cache(uint64_t *to, const uint64_t *from, Py_ssize_t count)
{
#if X86
    if ((uintptr_t)to % 64 == 0 && count % 8 == 0) {
        for (Py_ssize_t i = 0; i < count; i += 2) _mm_stream_si128((__m128i *)(to + i), _mm_load_si128((const __m128i *)(from + i)));
        return;
    }
#endif
    memcpy(to, from, count * sizeof(uint64_t));
}

INLINE void doubles_flush(const Field *f, uint64_t *to, Py_ssize_t apart, int first, const void *sum, int size, Py_ssize_t count)
{
    double p = f->pd, inverse = f->inverse;
    uint64_t residues[MAX_BLOCK] __attribute__((aligned(64))), limit = f->p;
    for (int k = 0; k < size; k++) {
        const double *restrict x = (const double *)sum + k * f->stride;
        uint64_t *restrict out = to + k * apart;
        for (Py_ssize_t i = 0; i < count; i++) {
            double r = centred(p, inverse, x[i]);
            residues[i] = integer_of(r < 0 ? r + p : r);
        }
        if (first) write_past_cache(out, residues, count);
        else
            for (Py_ssize_t i = 0; i < count; i++) {
                uint64_t both = out[i] + residues[i];
                out[i] = both - (limit & -(uint64_t)(both >= limit));
            }
    }
}

INLINE void doubles_at_point(const Field *f, double *restrict to, const double *restrict from, int point)
{
    double p = f->pd, inverse = f->inverse, x = point;
    const double *restrict second = from + f->stride;
    for (Py_ssize_t i = 0, n = f->n; i < n; i++) to[i] = centred(p, inverse, from[i] + x * second[i]);
}

/* Values are below 0.51 p. With p < 2^47 sums of 64 of them are below 2^52, and quotients below 2^51 wrong by less than 1; else each of them
 * is multiplied by its own weight modulo p. */
INLINE void doubles_component(const Field *f, uint64_t *restrict to, const double *restrict values, const int size, const Weights w)
{
    double p = f->pd, inverse = f->inverse, by = centred(p, inverse, (double)inverse_of_small(f->p, w.denominator)), weights[MAX_POINTS];
    Py_ssize_t s = f->stride, n = f->n;
    if (f->bits < 48) {
        for (Py_ssize_t i = 0; i < n; i++) {
            double sum = w.numerators[0] * values[i];
            if (size > 1) sum += w.numerators[1] * values[s + i];
            if (size > 2) sum += w.numerators[2] * values[2 * s + i];
            if (size > 3) sum += w.numerators[3] * values[3 * s + i];
            if (size > 4) sum += w.numerators[4] * values[4 * s + i];
            double r = centred(p, inverse, w.denominator > 1 ? product_of(p, inverse, sum, by) : sum);
            to[i] = integer_of(r < 0 ? r + p : r);
        }
        return;
    }
    for (int j = 0; j < size; j++) weights[j] = centred(p, inverse, product_of(p, inverse, by, w.numerators[j]));
    for (Py_ssize_t i = 0; i < n; i++) {
        double sum = product_of(p, inverse, values[i], weights[0]);
        if (size > 1) sum += product_of(p, inverse, values[s + i], weights[1]);
        if (size > 2) sum += product_of(p, inverse, values[2 * s + i], weights[2]);
        if (size > 3) sum += product_of(p, inverse, values[3 * s + i], weights[3]);
        if (size > 4) sum += product_of(p, inverse, values[4 * s + i], weights[4]);
        double r = centred(p, inverse, sum);
        to[i] = integer_of(r < 0 ? r + p : r);
    }
}

INLINE void residues_to_memory(uint64_t p, uint64_t *restrict to, const uint64_t *restrict residues, int first, Py_ssize_t count)
{
    if (first) write_past_cache(to, residues, count);
    else
        for (Py_ssize_t i = 0; i < count; i++) {
            uint64_t both = to[i] + residues[i];
            to[i] = both - (p & -(uint64_t)(both >= p));
        }
}

INLINE void doubles_interpolate(
    const Field *f, uint64_t *to, Py_ssize_t apart, int first, const void *values, int size, Py_ssize_t count)
{
    uint64_t residues[MAX_BLOCK] __attribute__((aligned(64)));
    for (int k = 0; k < size; k++, to += apart) {
        switch (size * MAX_POINTS + k) { /* with weights that the compiler knows */
#define COMPONENT(SIZE, K) case SIZE * MAX_POINTS + K: doubles_component(f, residues, values, SIZE, WEIGHTS[SIZE][K]); break;
            COMPONENT(1, 0) COMPONENT(2, 0) COMPONENT(2, 1) COMPONENT(3, 0) COMPONENT(3, 1) COMPONENT(3, 2)
            COMPONENT(4, 0) COMPONENT(4, 1) COMPONENT(4, 2) COMPONENT(4, 3)
            COMPONENT(5, 0) COMPONENT(5, 1) COMPONENT(5, 2) COMPONENT(5, 3) COMPONENT(5, 4)
#undef COMPONENT
            default: break;
        }
        residues_to_memory(f->p, to, residues, first, count);
    }
}

/* The same functions for one kind of processor. */
#define DOUBLES(NAME, TARGET)                                                                                               \
    TARGET static int NAME##_load(const Field *f, void *to, const uint64_t *from, Py_ssize_t count)                               \
    {                                                                                                                       \
        return doubles_load(f, to, from, count);                                                                            \
    }                                                                                                                       \
    TARGET static void NAME##_linear(                                                                                       \
        const Field *f, void *to, int size, const Term *terms, int n_terms, const uint64_t *constant)                       \
    {                                                                                                                       \
        doubles_linear(f, to, size, terms, n_terms, constant);                                                              \
    }                                                                                                                       \
    TARGET static void NAME##_product(                                                                                      \
        const Field *f, void *to, void *rest, Sum sum, const void *a, int na, const void *b, int nb)                        \
    {                                                                                                                       \
        double spare[MAX_BLOCK] __attribute__((aligned(64)));                                                               \
        doubles_product(f, to, rest, sum, a, na, b, nb, spare);                                                             \
    }                                                                                                                       \
    TARGET static void NAME##_add(const Field *f, Sum sum, const void *from, int size)                                      \
    {                                                                                                                       \
        doubles_add(f, sum, from, size);                                                                                    \
    }                                                                                                                       \
    TARGET static void NAME##_flush(                                                                                        \
        const Field *f, uint64_t *to, Py_ssize_t apart, int first, const void *sum, int size, Py_ssize_t count)                         \
    {                                                                                                                       \
        doubles_flush(f, to, apart, first, sum, size, count);                                                               \
    }                                                                                                                       \
    TARGET static void NAME##_at_point(const Field *f, void *to, const void *from, int point)                               \
    {                                                                                                                       \
        doubles_at_point(f, to, from, point);                                                                               \
    }                                                                                                                       \
    TARGET static void NAME##_interpolate(                                                                                  \
        const Field *f, uint64_t *to, Py_ssize_t apart, int first, const void *values, int size, Py_ssize_t count)          \
    {                                                                                                                       \
        doubles_interpolate(f, to, apart, first, values, size, count);                                                      \
    }                                                                                                                       \
    static const Machine NAME##_machine = {NAME##_load, NAME##_linear, NAME##_product, NAME##_add, NAME##_flush, 0,         \
                                           NAME##_at_point, branching_##NAME, NAME##_interpolate};

#endif

#if ARM

#define NAME(f) f##_neon
#define TARGET
#define LANES 2
#define vec float64x2_t
#define LOAD(a) vld1q_f64(a)
#define STORE(a, x) vst1q_f64(a, x)
#define ALL(x) vdupq_n_f64(x)
#define ADD vaddq_f64
#define SUB vsubq_f64
#define MUL vmulq_f64
#define FMADD(a, b, c) vfmaq_f64(c, a, b)
#define FMSUB(a, b, c) vfmaq_f64(vnegq_f64(c), a, b)
#define FNMADD(a, b, c) vfmsq_f64(c, a, b)
#include "branchings.h"

DOUBLES(neon, /* which every such processor has */)
#endif

#if X86

#define NAME(f) f##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 4
#define vec __m256d
#define LOAD(a) _mm256_load_pd(a)
#define STORE(a, x) _mm256_store_pd(a, x)
#define ALL(x) _mm256_set1_pd(x)
#define ADD _mm256_add_pd
#define SUB _mm256_sub_pd
#define MUL _mm256_mul_pd
#define FMADD _mm256_fmadd_pd
#define FMSUB _mm256_fmsub_pd
#define FNMADD _mm256_fnmadd_pd
#include "branchings.h"

#define NAME(f) f##_avx512
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")))
#define LANES 8
#define vec __m512d
#define LOAD(a) _mm512_load_pd(a)
#define STORE(a, x) _mm512_store_pd(a, x)
#define ALL(x) _mm512_set1_pd(x)
#define ADD _mm512_add_pd
#define SUB _mm512_sub_pd
#define MUL _mm512_mul_pd
#define FMADD _mm512_fmadd_pd
#define FMSUB _mm512_fmsub_pd
#define FNMADD _mm512_fnmadd_pd
#include "branchings.h"

DOUBLES(avx2, __attribute__((target("avx2,fma"))))
#ifdef __clang__ /* which ignores all of an attribute that has a word unknown to it */
#define WIDE ""
#else
#define WIDE ",prefer-vector-width=512"
#endif
DOUBLES(avx512, __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma" WIDE))))

/* -- integers of 52 bits: AVX-512 IFMA --------------------------------------------------------------------------------------- */

#define IFMA_TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512ifma")))
#define IFMA_INLINE static inline __attribute__((always_inline, target("avx512f,avx512dq,avx512vl,avx512ifma")))
typedef __m512i Lanes;

IFMA_INLINE Lanes every(uint64_t x) { return _mm512_set1_epi64((long long)x); }
IFMA_INLINE Lanes at(const void *from, Py_ssize_t i) { return _mm512_load_si512((const uint64_t *)from + i); }
IFMA_INLINE void put(void *to, Py_ssize_t i, Lanes x) { _mm512_store_si512((uint64_t *)to + i, x); }
/* In [0, p) again, after a sum or a difference: what is negative is huge when read without sign. */
IFMA_INLINE Lanes lanes_plus(Lanes p, Lanes a, Lanes b)
{
    Lanes sum = _mm512_add_epi64(a, b);
    return _mm512_min_epu64(sum, _mm512_sub_epi64(sum, p));
}
IFMA_INLINE Lanes lanes_minus(Lanes p, Lanes a, Lanes b)
{
    Lanes difference = _mm512_sub_epi64(a, b);
    return _mm512_min_epu64(difference, _mm512_add_epi64(difference, p));
}

/* (high 2^52 + low) / 2^52 modulo p, for a number below 2^52 p: up to 4 products, as p < 2^50. With m = low / p modulo 2^52, m p
 * has the same last 52 bits as the number, so that the difference of what stands above them is exact. */
IFMA_INLINE Lanes montgomery(Lanes p, Lanes inverse, Lanes high, Lanes low)
{
    Lanes zero = _mm512_setzero_si512();
    Lanes m = _mm512_madd52lo_epu64(zero, low, inverse);
    Lanes above = _mm512_add_epi64(high, _mm512_srli_epi64(low, 52));
    return lanes_minus(p, above, _mm512_madd52hi_epu64(zero, m, p));
}

IFMA_TARGET static int ifma_load(const Field *f, void *to, const uint64_t *from, Py_ssize_t count)
{
    Lanes p = every(f->p);
    __mmask8 bad = 0;
    for (Py_ssize_t i = 0; i < f->n; i += 8) {
        Py_ssize_t left = count - i;
        __mmask8 there = left >= 8 ? 0xff : left <= 0 ? 0 : (__mmask8)((1u << left) - 1);
        _mm_prefetch((const char *)(from + i + f->stride), _MM_HINT_T1); /* of the next block: no stream that hardware would see */
        Lanes x = _mm512_maskz_loadu_epi64(there, from + i);
        bad |= _mm512_cmpge_epu64_mask(x, p);
        put(to, i, x);
    }
    return bad != 0;
}

IFMA_INLINE Lanes ifma_term(const Field *f, Lanes p, Lanes inverse, Lanes sum, const Term *term, Py_ssize_t where)
{
    Lanes x = at(term->from, where);
    if (term->coefficient == PLUS) return lanes_plus(p, sum, x);
    if (term->coefficient == MINUS) return lanes_minus(p, sum, x);
    Lanes c = every(f->constants[term->coefficient]), zero = _mm512_setzero_si512();
    Lanes scaled = montgomery(p, inverse, _mm512_madd52hi_epu64(zero, x, c), _mm512_madd52lo_epu64(zero, x, c));
    return lanes_plus(p, sum, scaled);
}

IFMA_TARGET static void ifma_linear(const Field *f, void *to, int size, const Term *terms, int n_terms, const uint64_t *constant)
{
    Lanes p = every(f->p), inverse = every(f->inverse52);
    for (int k = 0; k < size; k++) {
        Lanes begin = k == 0 && constant ? every(*constant) : _mm512_setzero_si512();
        for (Py_ssize_t i = k * f->stride; i < k * f->stride + f->n; i += 8) {
            Lanes sum = begin;
            for (int t = 0; t < n_terms; t++)
                if (k < terms[t].size) sum = ifma_term(f, p, inverse, sum, &terms[t], i);
            put(to, i, sum);
        }
    }
}

/* What is done with a component of a product. */
IFMA_INLINE void ifma_spread(Lanes p, void *to, void *rest, Sum sum, Py_ssize_t k, Py_ssize_t s, Py_ssize_t i, Lanes whole, Lanes r)
{
    if (to) put(to, k * s + i, r);
    if (rest) put(rest, k * s + i, lanes_minus(p, whole, r));
    if (!sum.at) return;
    uint64_t *all = (uint64_t *)sum.at + k * sum.apart + i;
    if (sum.how == STREAM) _mm512_stream_si512((void *)all, r);
    else if (sum.how == LAST || sum.how == LAST_MORE) {
        uint64_t *out = sum.out + k * sum.out_apart + i;
        Lanes total = lanes_plus(p, at(all, 0), r);
        if (sum.how == LAST) _mm512_stream_si512((void *)out, total);
        else put(out, 0, lanes_plus(p, at(out, 0), total));
    } else put(all, 0, sum.how == FIRST ? r : lanes_plus(p, at(all, 0), r));
}

/* All components at once, for sizes that the compiler knows: factors are loaded once, and the components' chains of operations
 * run beside each other. */
IFMA_INLINE void ifma_product_of(const Field *f, void *to, void *rest, Sum sum, const void *a, const int na, const void *b)
{
    Lanes p = every(f->p), inverse = every(f->inverse52), zero = _mm512_setzero_si512();
    Py_ssize_t s = f->stride;
    for (Py_ssize_t i = 0; i < f->n; i += 8) {
        Lanes x[MAX_SIZE], y0 = at(b, i), y1 = at(b, s + i);
#pragma GCC unroll 16
        for (int j = 0; j < na; j++) x[j] = at(a, j * s + i);
#pragma GCC unroll 16
        for (int k = 0; k <= na; k++) {
            Lanes high = zero, low = zero;
            if (k < na) high = _mm512_madd52hi_epu64(high, x[k], y0), low = _mm512_madd52lo_epu64(low, x[k], y0);
            if (k > 0) high = _mm512_madd52hi_epu64(high, x[k - 1], y1), low = _mm512_madd52lo_epu64(low, x[k - 1], y1);
            Lanes r = montgomery(p, inverse, high, low);
            ifma_spread(p, to, rest, sum, k, s, i, k < na ? x[k] : zero, r);
        }
    }
}

/* Any sizes, component by component. */
IFMA_TARGET static void ifma_product_any(
    const Field *f, void *to, void *rest, Sum sum, const void *a, int na, const void *b, int nb)
{
    Lanes p = every(f->p), inverse = every(f->inverse52), zero = _mm512_setzero_si512();
    Py_ssize_t s = f->stride;
    for (int k = 0; k < na + nb - 1; k++) {
        int from = at_least(0, k - nb + 1), last = at_most(k, na - 1);
        for (Py_ssize_t i = 0; i < f->n; i += 8) {
            Lanes high = zero, low = zero, r = zero;
            for (int j = from; j <= last; j++) {
                Lanes x = at(a, j * s + i), y = at(b, (k - j) * s + i);
                high = _mm512_madd52hi_epu64(high, x, y), low = _mm512_madd52lo_epu64(low, x, y);
                if ((j - from) % 4 == 3 && j < last) { /* no more than four products to a reduction */
                    r = lanes_plus(p, r, montgomery(p, inverse, high, low));
                    high = low = zero;
                }
            }
            r = lanes_plus(p, r, montgomery(p, inverse, high, low));
            ifma_spread(p, to, rest, sum, k, s, i, k < na ? at(a, k * s + i) : zero, r);
        }
    }
}

/* With what is wanted known to the compiler, no branches are left inside. */
IFMA_INLINE void ifma_product_wanted(const Field *f, void *to, void *rest, Sum sum, const void *a, const int na, const void *b)
{
    int leaf = !to && !rest && sum.at, inner = to && rest && sum.at;
#define WANTED(HOW)                                                                                                          \
    if ((leaf || inner) && sum.how == HOW) {                                                                                 \
        sum.how = HOW;                                                                                                       \
        if (leaf) ifma_product_of(f, NULL, NULL, sum, a, na, b);                                                             \
        else ifma_product_of(f, to, rest, sum, a, na, b);                                                                    \
        return;                                                                                                              \
    }
    WANTED(MORE)
    WANTED(STREAM)
    WANTED(LAST)
    WANTED(LAST_MORE)
#undef WANTED
    ifma_product_of(f, to, rest, sum, a, na, b);
}

IFMA_TARGET static void ifma_product(
    const Field *f, void *to, void *rest, Sum sum, const void *a, int na, const void *b, int nb)
{
    switch (nb == 2 ? na : 0) {
    case 2: ifma_product_wanted(f, to, rest, sum, a, 2, b); return;
    case 3: ifma_product_wanted(f, to, rest, sum, a, 3, b); return;
    case 4: ifma_product_wanted(f, to, rest, sum, a, 4, b); return;
    case 5: ifma_product_wanted(f, to, rest, sum, a, 5, b); return;
    case 6: ifma_product_wanted(f, to, rest, sum, a, 6, b); return;
    default: ifma_product_any(f, to, rest, sum, a, na, b, nb);
    }
}

IFMA_TARGET static void ifma_add(const Field *f, Sum sum, const void *from, int size)
{
    Lanes p = every(f->p), zero = _mm512_setzero_si512();
    for (int k = 0; k < size; k++)
        for (Py_ssize_t i = 0; i < f->n; i += 8)
            ifma_spread(p, NULL, NULL, sum, k, f->stride, i, zero, at(from, k * f->stride + i));
}

IFMA_TARGET static void ifma_flush(
    const Field *f, uint64_t *to, Py_ssize_t apart, int first, const void *sum, int size, Py_ssize_t count)
{
    Lanes p = every(f->p);
    for (int k = 0; k < size; k++) {
        const uint64_t *x = (const uint64_t *)sum + k * f->stride;
        uint64_t *out = to + k * apart;
        if (first) {
            write_past_cache(out, x, count);
            continue;
        }
        for (Py_ssize_t i = 0; i < count; i += 8) {
            __mmask8 there = count - i >= 8 ? 0xff : (__mmask8)((1u << (count - i)) - 1);
            _mm512_mask_storeu_epi64(out + i, there, lanes_plus(p, _mm512_maskz_loadu_epi64(there, out + i), at(x, i)));
        }
    }
}

IFMA_TARGET static void ifma_at_point(const Field *f, void *to, const void *from, int point)
{
    Lanes p = every(f->p);
    for (Py_ssize_t i = 0; i < f->n; i += 8) {
        Lanes x = at(from, i), y = at(from, f->stride + i);
        if (point == 2 || point == -2) y = lanes_plus(p, y, y);
        put(to, i, point == 0 ? x : point > 0 ? lanes_plus(p, x, y) : lanes_minus(p, x, y));
    }
}

/* As in branchings.h. Last products are of numbers below 2p and p: chunks_at_once of them are below 2^52 p, which Montgomery's reduction
 * takes. */
IFMA_INLINE Lanes ifma_times(Lanes p, Lanes inverse, Lanes a, Lanes b)
{
    Lanes zero = _mm512_setzero_si512();
    return montgomery(p, inverse, _mm512_madd52hi_epu64(zero, a, b), _mm512_madd52lo_epu64(zero, a, b));
}

IFMA_TARGET static void ifma_branching(const Field *f, const Branch *b, Py_ssize_t n_chunks)
{
    const Lanes p = every(f->p), inverse = every(f->inverse52), zero = _mm512_setzero_si512();
    const Py_ssize_t at_once = chunks_at_once(f->bits);
    for (Py_ssize_t i = 0; i < f->n; i += 8) {
        Lanes sum[4] = {zero, zero, zero, zero}, last[4] = {zero, zero, zero, zero};
        for (Py_ssize_t chunk = 0, to = i; chunk < n_chunks;) {
            Lanes high[4] = {zero, zero, zero, zero}, low[4] = {zero, zero, zero, zero};
            Py_ssize_t end = chunk + at_once < n_chunks ? chunk + at_once : n_chunks;
            for (; chunk < end; chunk++, to += b->apart) {
                Lanes whole = at(b->from[0], to), in = ifma_times(p, inverse, whole, at(b->from[1], to));
                Lanes out = _mm512_sub_epi64(_mm512_add_epi64(whole, p), in); /* below 2p */
                Lanes in_in = ifma_times(p, inverse, in, at(b->from[2], to)), out_in = ifma_times(p, inverse, out, at(b->from[3], to));
                Lanes left = _mm512_sub_epi64(out, out_in);
                Lanes part[4] = {in_in, _mm512_sub_epi64(_mm512_add_epi64(in, p), in_in), out_in,
                                 _mm512_min_epu64(left, _mm512_add_epi64(left, p))};
                sum[0] = _mm512_add_epi64(sum[0], whole), sum[1] = _mm512_add_epi64(sum[1], in);
                sum[2] = _mm512_add_epi64(sum[2], in_in), sum[3] = _mm512_add_epi64(sum[3], out_in);
#pragma GCC unroll 4
                for (int k = 0; k < 4; k++) {
                    Lanes factor = at(b->from[4 + k], to);
                    high[k] = _mm512_madd52hi_epu64(high[k], part[k], factor), low[k] = _mm512_madd52lo_epu64(low[k], part[k], factor);
                }
            }
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) last[k] = lanes_plus(p, last[k], montgomery(p, inverse, high[k], low[k]));
        }
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            Lanes total = sum[k];
            for (uint64_t times = MAX_CHUNKS_AT_POINTS / 2; times; times /= 2)
                total = _mm512_min_epu64(total, _mm512_sub_epi64(total, every(times * f->p)));
            if (b->to[k]) put(b->to[k], i, total);
            if (b->to[4 + k]) put(b->to[4 + k], i, last[k]);
        }
    }
}

/* Sums of up to 64 values below p, some of them subtracted from 64p: brought below 4p and so to 52 bits. */
IFMA_INLINE void ifma_component(const Field *f, uint64_t *to, const uint64_t *values, const int size, const Weights w)
{
    Lanes p = every(f->p), inverse = every(f->inverse52);
    Lanes factor = every((uint64_t)(((u128)inverse_of_small(f->p, w.denominator) << 52) % f->p));
    for (Py_ssize_t i = 0; i < f->n; i += 8) {
        Lanes sum = every(64 * f->p);
#pragma GCC unroll 5
        for (int j = 0; j < size; j++)
            if (w.numerators[j]) sum = _mm512_add_epi64(sum, _mm512_mullo_epi64(at(values, j * f->stride + i), every((uint64_t)(int64_t)w.numerators[j])));
#pragma GCC unroll 5
        for (int times = 64; times > 2; times /= 2) sum = _mm512_min_epu64(sum, _mm512_sub_epi64(sum, every((uint64_t)times * f->p)));
        put(to, i, ifma_times(p, inverse, sum, factor));
    }
}

IFMA_TARGET static void ifma_interpolate(
    const Field *f, uint64_t *to, Py_ssize_t apart, int first, const void *values, int size, Py_ssize_t count)
{
    uint64_t residues[MAX_BLOCK] __attribute__((aligned(64)));
    for (int k = 0; k < size; k++, to += apart) {
        const void *found = residues;
        switch (k ? size * MAX_POINTS + k : 0) {
            case 0: found = values; break; /* the value at 0 is the first component */
#define COMPONENT(SIZE, K) case SIZE * MAX_POINTS + K: ifma_component(f, residues, values, SIZE, WEIGHTS[SIZE][K]); break;
            COMPONENT(2, 1) COMPONENT(3, 1) COMPONENT(3, 2) COMPONENT(4, 1) COMPONENT(4, 2) COMPONENT(4, 3)
            COMPONENT(5, 1) COMPONENT(5, 2) COMPONENT(5, 3) COMPONENT(5, 4)
#undef COMPONENT
            default: break;
        }
        residues_to_memory(f->p, to, found, first, count);
    }
}

static const Machine ifma_machine = {ifma_load, ifma_linear, ifma_product, ifma_add, ifma_flush, 1,
                                     ifma_at_point, ifma_branching, ifma_interpolate};
#endif /* X86 */

/* -- the tape ------------------------------------------------------------------------------------------------------------------ */

/* LOAD to, column | LINEAR to, size, constant or -1, n, n times (coefficient, from, size) | ADD total, from, size
 * PRODUCT to, rest, total (-1: not wanted), a, size of a, b, size of b
 * Vectors are numbered: those of the prologue first, which each chunk has of its own, then temporary ones. */

typedef struct {
    const int32_t *tape;
    const int32_t *segments; /* n_segments x 4: tape from, to; totals from, to. The first is the prologue. */
    const int32_t *totals;   /* n_totals x 3: size; vector in the local accumulators; component in the accumulators in memory */
    Py_ssize_t n_tape, n_segments, n_totals;
    Py_ssize_t n_shared, n_temporary, n_local; /* vectors */
    Py_ssize_t n_constants;
} Program;

typedef struct {
    const Program *program;
    const Machine *machine;
    Field field;
    const uint64_t *const *columns; /* n_chunks x n_columns, each (2, n_primes, ring) */
    Py_ssize_t n_chunks, n_columns, prime, n_primes, ring, block;
    uint64_t *accumulators;
    int add, stream, known; /* known: the prologue has been run */
    uint64_t *shared, *temporary, *local;
    uint64_t *kept; /* shared vectors of all blocks, for tapes with the same prologue; or NULL */
    Term *terms; /* of the linear combination at hand */
} Job;

INLINE void *vector_at(const Job *job, Py_ssize_t chunk, int32_t number)
{
    const Program *program = job->program;
    if (number < 0) return NULL;
    if (number < program->n_shared) return job->shared + (chunk * program->n_shared + number) * job->field.stride;
    return job->temporary + (number - program->n_shared) * job->field.stride;
}

INLINE uint64_t *residues_of(const Job *job, Py_ssize_t total, Py_ssize_t start)
{
    return job->accumulators + ((Py_ssize_t)job->program->totals[3 * total + 2] * job->n_primes + job->prime) * job->ring + start;
}

INLINE Sum sum_of(const Job *job, int32_t total, Py_ssize_t chunk, Py_ssize_t start)
{
    if (total < 0) return (Sum){NULL, 0, FIRST, NULL, 0};
    uint64_t *out = residues_of(job, total, start);
    Py_ssize_t apart = job->n_primes * job->ring;
    if (job->stream && job->n_chunks == 1) return (Sum){out, apart, STREAM, NULL, 0};
    void *local = job->local + job->program->totals[3 * total + 1] * job->field.stride;
    if (job->stream && chunk == job->n_chunks - 1)
        return (Sum){local, job->field.stride, job->add ? LAST_MORE : LAST, out, apart};
    return (Sum){local, job->field.stride, chunk ? MORE : FIRST, NULL, 0};
}

static int run_load(const Job *job, const int32_t *word, Py_ssize_t chunk, Py_ssize_t start, Py_ssize_t count)
{
    const uint64_t *column = job->columns[chunk * job->n_columns + word[2]] + job->prime * job->ring + start;
    uint64_t *to = vector_at(job, chunk, word[1]);
    int bad = 0;
    for (int k = 0; k < 2; k++)
        bad |= job->machine->load(&job->field, to + k * job->field.stride, column + k * job->n_primes * job->ring, count);
    return bad;
}

static void run_linear(const Job *job, const int32_t *word, Py_ssize_t chunk)
{
    int n_terms = word[4];
    for (int t = 0; t < n_terms; t++) {
        const int32_t *term = word + 5 + 3 * t;
        job->terms[t] = (Term){term[0], term[2], vector_at(job, chunk, term[1])};
    }
    const uint64_t *constant = word[3] < 0 ? NULL : job->field.constants + word[3];
    job->machine->linear(&job->field, vector_at(job, chunk, word[1]), word[2], job->terms, n_terms, constant);
}

/* The tape between two words, for one chunk; the index of a column that holds what is no residue, or -1. */
static Py_ssize_t run_tape(const Job *job, Py_ssize_t from, Py_ssize_t to, Py_ssize_t chunk, Py_ssize_t start, Py_ssize_t count)
{
    const int32_t *word = job->program->tape + from, *end = job->program->tape + to;
    const Machine *machine = job->machine;
    while (word < end) {
        switch (word[0]) {
        case LOAD:
            if (run_load(job, word, chunk, start, count)) return chunk * job->n_columns + word[2];
            word += 3;
            break;
        case LINEAR:
            run_linear(job, word, chunk);
            word += 5 + 3 * word[4];
            break;
        case PRODUCT:
            machine->product(
                &job->field, vector_at(job, chunk, word[1]), vector_at(job, chunk, word[2]), sum_of(job, word[3], chunk, start),
                vector_at(job, chunk, word[4]), word[5], vector_at(job, chunk, word[6]), word[7]);
            word += 8;
            break;
        default:
            machine->add(&job->field, sum_of(job, word[1], chunk, start), vector_at(job, chunk, word[2]), word[3]);
            word += 4;
        }
    }
    return -1;
}

static Py_ssize_t run_block(Job *job, Py_ssize_t start, Py_ssize_t count)
{
    const Program *program = job->program;
    job->field.n = (count + 7) & ~7L;
    /* Sums of whole and aligned vectors are not kept longer than they are added to: the last chunk takes them to memory. */
    job->stream = job->machine->streams && (job->n_chunks > 1 || !job->add) && count % 8 == 0 && job->ring % 8 == 0
                  && (uintptr_t)(job->accumulators + start) % 64 == 0;
    Py_ssize_t n_blocks = (job->ring + job->block - 1) / job->block, words = job->n_chunks * program->n_shared * job->field.stride;
    if (job->kept) job->shared = job->kept + (job->prime * n_blocks + start / job->block) * words;
    for (Py_ssize_t chunk = 0; chunk < job->n_chunks && !job->known; chunk++) {
        Py_ssize_t bad = run_tape(job, program->segments[0], program->segments[1], chunk, start, count);
        if (bad >= 0) return bad;
    }
    for (Py_ssize_t s = 1; s < program->n_segments; s++) {
        const int32_t *segment = program->segments + 4 * s;
        for (Py_ssize_t chunk = 0; chunk < job->n_chunks; chunk++) run_tape(job, segment[0], segment[1], chunk, start, count);
        for (Py_ssize_t total = segment[2]; total < segment[3] && !job->stream; total++) {
            const int32_t *facts = program->totals + 3 * total;
            job->machine->flush(
                &job->field, residues_of(job, total, start), job->n_primes * job->ring, !job->add,
                job->local + facts[1] * job->field.stride, facts[0], count);
        }
    }
#if X86
    _mm_sfence(); /* whoever reads the sums sees what was written past the cache */
#endif
    return -1;
}

/* -- branchings ---------------------------------------------------------------------------------------------------------------- */

/* Sums of trees of products: a root and its sum, seven factors, and seven sums; vectors of the prologue, and components in memory
 * (-1: not wanted). A sum has as many components as it has factors, and the root's two. A product of polynomials is found from its
 * values at as many points as it has components: a product of values each, and sums are interpolated once for all chunks. */
enum { BRANCHING_WORDS = 16, ROOT = 0, ROOT_SUM = 1, FACTORS = 2, FACTOR_SUMS = 9 };
static const int SUM_SIZES[8] = {2, 3, 4, 4, 5, 5, 5, 5};

typedef struct {
    const int32_t *words;
    Py_ssize_t n, n_components;
    uint64_t *at_point; /* what chunks share, at one point */
    uint64_t *values;   /* sums of the block at all points: a vector for each component in memory */
} Branchings;

INLINE int sum_at(const int32_t *words, int k) { return k ? words[FACTOR_SUMS + k - 1] : words[ROOT_SUM]; }

INLINE uint64_t *vector_at_point(const Job *job, const Branchings *all, Py_ssize_t chunk, int32_t number)
{
    return all->at_point + (chunk * job->program->n_shared + number) / 2 * job->field.stride;
}

/* All sums at one point, for a block. */
static void run_branchings_at(const Job *job, const Branchings *all, int number_of_point)
{
    Py_ssize_t stride = job->field.stride, n_shared = job->program->n_shared;
    for (Py_ssize_t chunk = 0; chunk < job->n_chunks; chunk++)
        for (int32_t number = 0; number < n_shared; number += 2)
            job->machine->at_point(
                &job->field, vector_at_point(job, all, chunk, number), vector_at(job, chunk, number), POINTS[number_of_point]);
    for (Py_ssize_t number = 0; number < all->n; number++) {
        const int32_t *words = all->words + BRANCHING_WORDS * number;
        Branch branch = {.apart = n_shared / 2 * stride};
        for (int k = 0; k < 8; k++) {
            int32_t sum = sum_at(words, k);
            branch.from[k] = vector_at_point(job, all, 0, k ? words[FACTORS + k - 1] : words[ROOT]);
            branch.to[k] = sum < 0 || number_of_point >= SUM_SIZES[k] ? NULL : all->values + (sum + number_of_point) * stride;
        }
        job->machine->branching(&job->field, &branch, job->n_chunks);
    }
}

static Py_ssize_t run_branching_block(Job *job, const Branchings *all, Py_ssize_t start, Py_ssize_t count)
{
    Py_ssize_t bad, apart = job->n_primes * job->ring;
    job->field.n = (count + 7) & ~7L;
    for (Py_ssize_t chunk = 0; chunk < job->n_chunks; chunk++)
        if ((bad = run_tape(job, 0, job->program->segments[1], chunk, start, count)) >= 0) return bad;
    for (int point = 0; point < MAX_POINTS; point++) run_branchings_at(job, all, point);
    for (Py_ssize_t number = 0; number < all->n; number++)
        for (int k = 0; k < 8; k++) {
            int32_t sum = sum_at(all->words + BRANCHING_WORDS * number, k);
            if (sum < 0) continue;
            uint64_t *to = job->accumulators + ((Py_ssize_t)sum * job->n_primes + job->prime) * job->ring + start;
            job->machine->interpolate(&job->field, to, apart, !job->add, all->values + sum * job->field.stride, SUM_SIZES[k], count);
        }
#if X86
    _mm_sfence();
#endif
    return -1;
}

/* -- checks: a tape that is wrong is refused, it can neither read nor write where it should not --------------------------------- */

static int fits(const Program *program, int in_prologue, int32_t number, int32_t size)
{
    Py_ssize_t vectors = program->n_shared + program->n_temporary;
    Py_ssize_t end = (Py_ssize_t)number + size; /* in 32 bits, a number near the largest would come out negative, and pass */
    if (size < 1 || size > MAX_SIZE || number < 0 || end > vectors) return 0;
    if (number < program->n_shared) return end <= program->n_shared;
    return !in_prologue;
}

static int fits_total(const Program *program, const int32_t *segment, int32_t total, int32_t size)
{
    return segment[2] <= total && total < segment[3] && program->totals[3 * total] == size;
}

static int is_constant(const Program *program, int32_t index) { return 0 <= index && index < program->n_constants; }

static int checked_instruction(const Program *program, const int32_t *segment, int prologue, const int32_t *word, Py_ssize_t left, Py_ssize_t n_columns)
{
    switch (word[0]) {
    case LOAD:
        return left >= 3 && prologue && fits(program, 1, word[1], 2) && 0 <= word[2] && word[2] < n_columns ? 3 : 0;
    case LINEAR:
        if (left < 5 || word[4] < 1 || (left - 5) / 3 < word[4] || !fits(program, prologue, word[1], word[2])) return 0;
        if (word[3] != -1 && !is_constant(program, word[3])) return 0;
        for (Py_ssize_t t = 0; t < word[4]; t++) {
            const int32_t *term = word + 5 + 3 * t;
            if (term[0] != PLUS && term[0] != MINUS && !is_constant(program, term[0])) return 0;
            if (!fits(program, prologue, term[1], term[2]) || term[2] > word[2]) return 0;
        }
        return 5 + 3 * word[4];
    case PRODUCT: {
        if (left < 8 || prologue || !fits(program, 0, word[4], word[5]) || !fits(program, 0, word[6], word[7])) return 0;
        int32_t size = word[5] + word[7] - 1;
        if (size > MAX_SIZE) return 0;
        if (word[1] != -1 && !fits(program, 0, word[1], size)) return 0;
        if (word[2] != -1 && !fits(program, 0, word[2], size)) return 0;
        return word[3] == -1 || fits_total(program, segment, word[3], size) ? 8 : 0;
    }
    case ADD:
        return left >= 4 && !prologue && fits(program, 0, word[2], word[3]) && fits_total(program, segment, word[1], word[3]) ? 4 : 0;
    default: return 0;
    }
}

static int checked_program(const Program *program, Py_ssize_t n_columns, Py_ssize_t n_components)
{
    for (Py_ssize_t total = 0; total < program->n_totals; total++) {
        const int32_t *facts = program->totals + 3 * total;
        if (facts[0] < 1 || facts[0] > MAX_SIZE || facts[1] < 0 || facts[1] + (Py_ssize_t)facts[0] > program->n_local) return 0;
        if (facts[2] < 0 || facts[2] + (Py_ssize_t)facts[0] > n_components) return 0;
    }
    for (Py_ssize_t s = 0; s < program->n_segments; s++) {
        const int32_t *segment = program->segments + 4 * s;
        if (segment[0] < 0 || segment[0] > segment[1] || segment[1] > program->n_tape) return 0;
        if (segment[2] < 0 || segment[2] > segment[3] || segment[3] > program->n_totals) return 0;
        for (Py_ssize_t at = segment[0]; at < segment[1];) {
            int words = checked_instruction(program, segment, s == 0, program->tape + at, segment[1] - at, n_columns);
            if (!words) return 0;
            at += words;
        }
    }
    return 1;
}

static int checked_branchings(const Program *program, const Branchings *all)
{
    for (Py_ssize_t number = 0; number < all->n; number++) {
        const int32_t *words = all->words + BRANCHING_WORDS * number;
        for (int k = 0; k < 8; k++) {
            int32_t vector = k ? words[FACTORS + k - 1] : words[ROOT], sum = sum_at(words, k);
            if (vector % 2 || !fits(program, 1, vector, 2)) return 0;
            if (sum < -1 || (sum >= 0 && (Py_ssize_t)sum + SUM_SIZES[k] > all->n_components)) return 0;
        }
    }
    return 1;
}

/* -- levels of processors -------------------------------------------------------------------------------------------------------- */

static int best_level(void)
{
#if X86
    __builtin_cpu_init();
    int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               && __builtin_cpu_supports("avx512bw");
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return BASELINE;
    if (!wide) return AVX2;
    return __builtin_cpu_supports("avx512ifma") ? IFMA : AVX512;
#else
    return LEVELS - 1; /* what it is compiled for */
#endif
}

static const Machine *machine_of(int level)
{
#if X86
    switch (level) {
    case IFMA: return &ifma_machine;
    case AVX512: return &avx512_machine;
    case AVX2: return &avx2_machine;
    default: break;
    }
#elif ARM
    if (level == NEON) return &neon_machine;
#endif
    (void)level;
    return &BASELINE_MACHINE;
}

static Field field_of(uint64_t p, const uint64_t *constants, Py_ssize_t stride)
{
    Field f = {.p = p, .pd = (double)p, .inverse = 1.0 / (double)p, .constants = constants, .stride = stride, .n = 0};
    f.inverse52 = 1;
    for (int i = 0; i < 6; i++) f.inverse52 *= 2 - p * f.inverse52; /* Newton: correct bits double, from one */
    f.inverse52 &= ((uint64_t)1 << 52) - 1;
    while (f.bits < 64 && p >> f.bits) f.bits++;
    f.barrett = (uint64_t)(((u128)1 << (63 + f.bits)) / p);
    return f;
}

/* -- Python ---------------------------------------------------------------------------------------------------------------------- */

PyDoc_STRVAR(levels_doc, "levels() -> tuple of str\n\nThe kinds of arithmetic that this processor has, the slowest first.");

static PyObject *levels(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    int n = best_level() + 1;
    PyObject *names = PyTuple_New(n);
    for (int i = 0; names && i < n; i++) {
        PyObject *name = PyUnicode_FromString(LEVEL_NAMES[i]);
        if (!name) {
            Py_DECREF(names);
            return NULL;
        }
        PyTuple_SET_ITEM(names, i, name);
    }
    return names;
}

enum { TAPE, SEGMENTS, TOTALS, CONSTANTS, ACCUMULATORS, SCRATCH, KEPT, BRANCHINGS, GIVEN };

/* The columns of all chunks: as many views as could be taken, so that they can be given back. */
typedef struct {
    Py_buffer *views;
    const uint64_t **from;
    Py_ssize_t taken;
} Columns;

static void release_columns(Columns *columns)
{
    for (Py_ssize_t i = 0; i < columns->taken; i++) PyBuffer_Release(&columns->views[i]);
    PyMem_Free(columns->views);
    PyMem_Free(columns->from);
}

static int take_columns(Columns *columns, PyObject *given, Py_ssize_t words)
{
    Py_ssize_t n = PyTuple_GET_SIZE(given);
    columns->views = PyMem_Calloc((size_t)n + 1, sizeof(Py_buffer));
    columns->from = PyMem_Calloc((size_t)n + 1, sizeof(uint64_t *));
    if (!columns->views || !columns->from) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_buffer *view = &columns->views[i];
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(given, i), view, PyBUF_CONTIG_RO)) return 0;
        columns->taken++;
        if (view->itemsize != 8 || (uintptr_t)view->buf % 8 || view->len != 8 * words) {
            PyErr_SetString(PyExc_ValueError, "a column is no array of residues of the shape (2, primes, ring)");
            return 0;
        }
        columns->from[i] = view->buf;
    }
    return 1;
}

static int level_of(const char *name)
{
    for (int level = 0; level <= best_level(); level++)
        if (!strcmp(name, LEVEL_NAMES[level])) return level;
    PyErr_Format(PyExc_ValueError, "this processor has no level %s", name);
    return -1;
}

enum { MAX_CHUNKS = 16 }; /* sums of so many products are exact in doubles */

static int checked_shape(const Job *job, uint64_t modulus, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t n_given)
{
    return modulus > 2 && modulus % 2 && modulus >> 50 == 0 && 0 <= job->prime && job->prime < job->n_primes && job->n_primes <= 64
           && job->ring > 0 && job->ring <= 1 << 20 && 0 < job->block && job->block <= MAX_BLOCK && 0 <= start && start <= stop
           && stop <= job->ring && 0 < job->n_chunks && job->n_chunks <= MAX_CHUNKS_AT_POINTS && n_given % job->n_chunks == 0;
}

PyDoc_STRVAR(
    run_doc,
    "run(level, modulus, (prime, primes, ring, chunks, block, start, stop), (shared, temporary, local), add, known, columns,\n"
    "    tape, segments, totals, constants, accumulators, scratch, kept, branchings=None) -> int\n\n"
    "Run a tape over the coefficients from start to stop of one prime, for all chunks: see circuits/tape.py, which writes it.\n"
    "Sums are added to the accumulators or (add false) written over them. What the prologue computes is kept for the next tape if\n"
    "there is room in kept; with known true it is there already. With branchings, these are all that is computed of the totals.\n"
    "Returns -1, or the index of a column that holds something that is no residue. Other threads run meanwhile.");

static PyObject *run(PyObject *self, PyObject *args)
{
    (void)self;
    const char *level_name;
    long long modulus;
    Py_ssize_t start, stop;
    Program program;
    Job job = {.program = &program};
    PyObject *given_columns, *given[GIVEN] = {NULL};
    if (!PyArg_ParseTuple(
            args, "sL(nnnnnnn)(nnn)ppO!OOOOOOO|O:run", &level_name, &modulus, &job.prime, &job.n_primes, &job.ring, &job.n_chunks,
            &job.block, &start, &stop, &program.n_shared, &program.n_temporary, &program.n_local, &job.add, &job.known,
            &PyTuple_Type, &given_columns, &given[TAPE], &given[SEGMENTS], &given[TOTALS], &given[CONSTANTS],
            &given[ACCUMULATORS], &given[SCRATCH], &given[KEPT], &given[BRANCHINGS]))
        return NULL;
    int level = level_of(level_name);
    if (level < 0) return NULL;
    if (!checked_shape(&job, (uint64_t)modulus, start, stop, PyTuple_GET_SIZE(given_columns)))
        return PyErr_Format(PyExc_ValueError, "a tape cannot be run in such a shape");
    job.n_columns = PyTuple_GET_SIZE(given_columns) / job.n_chunks;
    job.machine = machine_of(level);

    static const char *const names[GIVEN] = {"tape", "segments", "totals", "constants", "accumulators", "scratch", "kept", "branchings"};
    static const Py_ssize_t sizes[GIVEN] = {4, 4, 4, 8, 8, 8, 8, 4};
    Py_buffer views[GIVEN] = {{0}};
    int taken = 0;
    Columns columns = {NULL, NULL, 0};
    PyObject *result = NULL;
    for (; taken < GIVEN && given[taken]; taken++) {
        Py_buffer *view = &views[taken];
        if (PyObject_GetBuffer(given[taken], view, taken >= ACCUMULATORS && taken < BRANCHINGS ? PyBUF_CONTIG : PyBUF_CONTIG_RO)) goto done;
        if (view->itemsize != sizes[taken] || (uintptr_t)view->buf % sizes[taken]) {
            PyErr_Format(PyExc_ValueError, "%s: items of %zd bytes are expected", names[taken], sizes[taken]);
            taken++;
            goto done;
        }
    }
    if (!take_columns(&columns, given_columns, 2 * job.n_primes * job.ring)) goto done;
    job.columns = columns.from;

    program.tape = views[TAPE].buf, program.n_tape = views[TAPE].len / 4;
    program.segments = views[SEGMENTS].buf, program.n_segments = views[SEGMENTS].len / 16;
    program.totals = views[TOTALS].buf, program.n_totals = views[TOTALS].len / 12;
    program.n_constants = views[CONSTANTS].len / 8;
    job.accumulators = views[ACCUMULATORS].buf;
    job.field = field_of((uint64_t)modulus, views[CONSTANTS].buf, (job.block + 7) & ~7L);
    job.shared = (uint64_t *)(((uintptr_t)views[SCRATCH].buf + 63) & ~(uintptr_t)63);

    Py_ssize_t most = (Py_ssize_t)1 << 31, vectors = 0;
    int sensible = program.n_shared >= 0 && program.n_temporary >= 0 && program.n_local >= 0 && program.n_shared < most
                   && program.n_temporary < most && program.n_local < most && program.n_segments > 0;
    Branchings branchings = {
        .words = views[BRANCHINGS].buf, .n = views[BRANCHINGS].len / (4 * BRANCHING_WORDS),
        .n_components = views[ACCUMULATORS].len / (8 * job.n_primes * job.ring), .at_point = NULL, .values = NULL};
    if (sensible && branchings.n) vectors = job.n_chunks * program.n_shared / 2 * 3 + branchings.n_components;
    else if (sensible) vectors = job.n_chunks * program.n_shared + program.n_temporary + program.n_local;
    sensible = sensible && vectors < most && views[SCRATCH].len >= 8 * (vectors * job.field.stride + 8)
               && checked_program(&program, job.n_columns, views[ACCUMULATORS].len / (8 * job.n_primes * job.ring));
    sensible = sensible && (branchings.n || job.n_chunks <= MAX_CHUNKS);
    if (sensible && branchings.n) {
        sensible = job.machine->branching && job.field.p % 3 && !job.known && !views[KEPT].len
                   && program.n_segments == 1 && program.segments[0] == 0 && program.n_shared % 2 == 0 && checked_branchings(&program, &branchings);
        branchings.at_point = job.shared + job.n_chunks * program.n_shared * job.field.stride;
        branchings.values = branchings.at_point + job.n_chunks * program.n_shared / 2 * job.field.stride;
    }
    if (sensible && (views[KEPT].len || job.known)) {
        Py_ssize_t per_block = job.n_chunks * program.n_shared * job.field.stride, n_blocks = (job.ring + job.block - 1) / job.block;
        job.kept = views[KEPT].buf;
        sensible = (uintptr_t)job.kept % 64 == 0 && start % job.block == 0
                   && views[KEPT].len / 8 >= job.n_primes * n_blocks * per_block;
    }
    for (Py_ssize_t i = 0; sensible && i < program.n_constants; i++) sensible = job.field.constants[i] < job.field.p;
    if (!sensible) {
        PyErr_SetString(PyExc_ValueError, "a tape that reaches beyond its vectors, totals or constants is not run");
        goto done;
    }
    job.terms = PyMem_Calloc((size_t)program.n_tape / 3 + 1, sizeof(Term)); /* no combination has more */
    if (!job.terms) {
        PyErr_NoMemory();
        goto done;
    }
    job.temporary = job.shared + (job.kept ? 0 : job.n_chunks * program.n_shared * job.field.stride);
    job.local = job.temporary + program.n_temporary * job.field.stride;

    Py_ssize_t bad = -1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = start; at < stop && bad < 0; at += job.block) {
        Py_ssize_t count = stop - at < job.block ? stop - at : job.block;
        bad = branchings.n ? run_branching_block(&job, &branchings, at, count) : run_block(&job, at, count);
    }
    Py_END_ALLOW_THREADS
    result = PyLong_FromSsize_t(bad);
done:
    while (taken > 0) PyBuffer_Release(&views[--taken]);
    release_columns(&columns);
    PyMem_Free(job.terms);
    return result;
}

static PyMethodDef methods[] = {
    {"levels", levels, METH_NOARGS, levels_doc},
    {"run", run, METH_VARARGS, run_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "encryptedstats._fused", "Sums over rows of polynomials in ciphertexts, modulo primes below 2^50.",
    0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__fused(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddIntConstant(made, "POINTS", MAX_POINTS)) Py_CLEAR(made);
    return made;
}
