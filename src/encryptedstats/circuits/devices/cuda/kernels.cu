/* The kernels of the CUDA device: sums over rows, transforms, and what bringing down, packing and expanding are made of.
 *
 * Polynomials in memory are residues in [0, p), 64-bit words in SEAL's order: a kernel converts what it reads and what it writes, and
 * every result equals SEAL's, residue for residue. Kernels loop over threads (`EACH`) and keep nothing in registers from one loop to the
 * next, so that they run with any number of threads, one included: on the processor of a computer without a card tests run them so.
 * The Python side is circuits/devices/cuda/.
 */
#include "arithmetic.h"

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define SYNC() __syncthreads()
#define BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define UNROLL _Pragma("unroll")
extern __shared__ u64 memory[];
#else
struct Index { unsigned x, y, z; };
extern "C" { Index blockIdx, threadIdx, blockDim = {1, 1, 1}, gridDim; u64 memory[1 << 17]; }
#define KERNEL extern "C" void
#define SYNC()
#define BOUNDS(threads, blocks)
#define UNROLL
static inline unsigned atomicMin(unsigned *at, unsigned x) { unsigned old = *at; if (x < old) *at = x; return old; }
#endif

#define EACH(i, count) for (int i = (int)threadIdx.x; i < (int)(count); i += (int)blockDim.x)
enum { MAX_PRIMES = 64 };

/* What all kernels of a ring read; pointers into the card's memory. Factors are pairs of w and floor(2^64 w / p). */
struct Ring {
    const Prime *primes;     /* the special one last */
    const u64 *forward, *inverse; /* twiddles of all primes: of Integers with their quotients, of Doubles alone */
    const u64 *inverses;     /* [r][i]: the inverse of prime r modulo data prime i */
    const u64 *minus_inverse_t; /* [r]: minus the inverse of prime r modulo t */
    u64 t;
    int logn, logm, n_primes, special; /* log2 of N, and of what one block transforms; primes, and which is the special one */
};

/* Polynomials: item after item, `item` words apart, in each of them `each` words apart; items at `places` where these are given. */
struct Polys {
    u64 *at;
    i64 item, each;
    const int *places;
};
HERE u64 *poly(const Polys &p, i64 item, i64 number) { return p.at + (p.places ? (i64)p.places[item] : item) * p.item + number * p.each; }
HERE u64 by_factor(u64 x, const u64 *factors, int i, u64 p) { return factors ? times(x, factors[2 * i], factors[2 * i + 1], p) : x; }

/* -- transforms ------------------------------------------------------------------------------------------------------------------- */

/* Shared memory without conflicts between threads that are a power of two apart. */
HERE int padded(int i) { return i + (i >> 3); }
template <class A> struct Table;
template <> struct Table<Integers> { enum { WORDS = 2 }; };
template <> struct Table<Doubles> { enum { WORDS = 1 }; };
HERE u64 word_of(u64 x) { return x; }
HERE u64 word_of(double x) { return as_word(x); }
template <class A> HERE typename A::word of_word(u64 x);
template <> INSIDE u64 of_word<Integers>(u64 x) { return x; }
template <> INSIDE double of_word<Doubles>(u64 x) { return as_double(x); }

/* The first stages of a part, from memory: neighbours are read together. */
template <class A, int S> HERE void forward_start(const u64 *src, u64 *x, const u64 *table, int logm, int part, const Prime &P) {
    int gap = 1 << (logm - S);
    EACH(u, gap) {
        typename A::word v[1 << S];
        UNROLL for (int k = 0; k < 1 << S; k++) v[k] = A::from_any(src[u + k * gap], P);
        UNROLL for (int s = 0; s < S; s++) {
            const int half = 1 << (S - 1 - s);
            UNROLL for (int k = 0; k < 1 << S; k++)
                if (!(k & half)) A::forward(v[k], v[k | half], A::twiddle(table, (part << s) + (k >> (S - s))), P);
        }
        UNROLL for (int k = 0; k < 1 << S; k++) x[padded(u + k * gap)] = word_of(v[k]);
    }
    SYNC();
}

/* The last ones of its inverse: `end` takes each value, with its place. */
template <class A, int S, class End> HERE void inverse_end(const u64 *x, const u64 *table, int logm, int part, const Prime &P, const End &end) {
    int gap = 1 << (logm - S);
    EACH(u, gap) {
        typename A::word v[1 << S];
        UNROLL for (int k = 0; k < 1 << S; k++) v[k] = A::begin_inverse(of_word<A>(x[padded(u + k * gap)]), P);
        UNROLL for (int s = S - 1; s >= 0; s--) {
            const int half = 1 << (S - 1 - s);
            UNROLL for (int k = 0; k < 1 << S; k++)
                if (!(k & half)) A::inverse(v[k], v[k | half], A::twiddle(table, (part << s) + (k >> (S - s))), P);
        }
        UNROLL for (int k = 0; k < 1 << S; k++) end(u + k * gap, v[k]);
    }
}

/* S stages of a forward transform of one part of 2^logm, from the one on that has m groups; `part` counts on from the parts that the
   whole has. Values move `gap` apart, 2^S at a time, in registers. */
template <class A, int S> HERE void forward_pass(u64 *x, const u64 *table, int logm, int m, int part, const Prime &P) {
    int size = 1 << logm, gap = size / (2 * m) >> (S - 1);
    EACH(u, size >> S) {
        int group = u / gap, first = group * (gap << S) + u % gap;
        typename A::word v[1 << S];
        UNROLL for (int k = 0; k < 1 << S; k++) v[k] = A::begin_forward(of_word<A>(x[padded(first + k * gap)]), P);
        UNROLL for (int s = 0; s < S; s++) {
            const int half = 1 << (S - 1 - s);
            UNROLL for (int k = 0; k < 1 << S; k++)
                if (!(k & half)) A::forward(v[k], v[k | half], A::twiddle(table, (m << s) * part + (group << s) + (k >> (S - s))), P);
        }
        UNROLL for (int k = 0; k < 1 << S; k++) x[padded(first + k * gap)] = word_of(v[k]);
    }
    SYNC();
}

/* Its inverse: the stages with m << (S - 1), ..., m groups. */
template <class A, int S> HERE void inverse_pass(u64 *x, const u64 *table, int logm, int m, int part, const Prime &P) {
    int size = 1 << logm, gap = size / (2 * m) >> (S - 1);
    EACH(u, size >> S) {
        int group = u / gap, first = group * (gap << S) + u % gap;
        typename A::word v[1 << S];
        UNROLL for (int k = 0; k < 1 << S; k++) v[k] = A::begin_inverse(of_word<A>(x[padded(first + k * gap)]), P);
        UNROLL for (int s = S - 1; s >= 0; s--) {
            const int half = 1 << (S - 1 - s);
            UNROLL for (int k = 0; k < 1 << S; k++)
                if (!(k & half)) A::inverse(v[k], v[k | half], A::twiddle(table, (m << s) * part + (group << s) + (k >> (S - s))), P);
        }
        UNROLL for (int k = 0; k < 1 << S; k++) x[padded(first + k * gap)] = word_of(v[k]);
    }
    SYNC();
}

/* Of 2^logm values: what is left over of threes comes first, with a whole three where it is one. */
template <class A> HERE void forward_all(const u64 *src, u64 *x, const u64 *table, int logm, int part, const Prime &P) {
    int done = (logm - 1) % 3 == 0 && logm > 3 ? 4 : logm % 3 == 0 ? 3 : logm % 3;
    if (done == 4) forward_start<A, 4>(src, x, table, logm, part, P);
    else if (done == 3) forward_start<A, 3>(src, x, table, logm, part, P);
    else if (done == 2) forward_start<A, 2>(src, x, table, logm, part, P);
    else forward_start<A, 1>(src, x, table, logm, part, P);
    for (; done < logm; done += 3) forward_pass<A, 3>(x, table, logm, 1 << done, part, P);
}

template <class A, class End> HERE void inverse_all(u64 *x, const u64 *table, int logm, int part, const Prime &P, const End &end) {
    int last = (logm - 1) % 3 == 0 && logm > 3 ? 4 : logm % 3 == 0 ? 3 : logm % 3;
    for (int left = logm; left > last; left -= 3) inverse_pass<A, 3>(x, table, logm, 1 << (left - 3), part, P);
    if (last == 4) inverse_end<A, 4>(x, table, logm, part, P, end);
    else if (last == 3) inverse_end<A, 3>(x, table, logm, part, P, end);
    else if (last == 2) inverse_end<A, 2>(x, table, logm, part, P, end);
    else inverse_end<A, 1>(x, table, logm, part, P, end);
}

/* The first stages of a transform that is too long for the memory of one block: those between values N / 2^S apart, one thread for 2^S
   of them. On the way back, the last stages. */
template <class A, int S> HERE void forward_outer(const u64 *src, u64 *out, const u64 *table, int n, const Prime &P) {
    int gap = n >> S;
    for (int u = (int)(blockIdx.x * blockDim.x + threadIdx.x); u < gap; u += (int)(gridDim.x * blockDim.x)) {
        typename A::word v[1 << S];
        UNROLL for (int k = 0; k < 1 << S; k++) v[k] = A::from_any(src[u + k * gap], P);
        UNROLL for (int s = 0; s < S; s++) {
            const int half = 1 << (S - 1 - s);
            UNROLL for (int k = 0; k < 1 << S; k++)
                if (!(k & half)) A::forward(v[k], v[k | half], A::twiddle(table, (1 << s) + (k >> (S - s))), P);
        }
        UNROLL for (int k = 0; k < 1 << S; k++) out[u + k * gap] = A::end_forward(v[k], P);
    }
}

template <class A, int S>
HERE void inverse_outer(u64 *x, const u64 *pending, const u64 *factors, int prime, const u64 *table, int n, const Prime &P) {
    int gap = n >> S;
    for (int u = (int)(blockIdx.x * blockDim.x + threadIdx.x); u < gap; u += (int)(gridDim.x * blockDim.x)) {
        typename A::word v[1 << S];
        UNROLL for (int k = 0; k < 1 << S; k++) v[k] = A::from(x[u + k * gap], P);
        UNROLL for (int s = S - 1; s >= 0; s--) {
            const int half = 1 << (S - 1 - s);
            UNROLL for (int k = 0; k < 1 << S; k++)
                if (!(k & half)) A::inverse(v[k], v[k | half], A::twiddle(table, (1 << s) + (k >> (S - s))), P);
        }
        UNROLL for (int k = 0; k < 1 << S; k++) {
            u64 r = by_factor(A::end_inverse(v[k], P), factors, prime, P.p);
            x[u + k * gap] = pending ? minus(r, pending[u + k * gap], P.p) : r;
        }
    }
}

/* Which prime, source and place number y of a launch has: prime first + y step, or from the first again after every `wrap`. Or, `lifted`,
   digits, of which there are so many, each under every target, the last of which is the special prime; but (`others`) not under its own. */
struct Which { int first, step, wrap, lifted, others; };
struct Turn { int prime, source, place; };
HERE Turn turn_of(const Ring &R, const Which &w, int y) {
    Turn t = {w.first + (w.wrap ? y % w.wrap : y) * w.step, y, y};
    if (!w.lifted) return t;
    int d = w.lifted - w.others, target = y < w.lifted * d ? y / d : w.lifted, digit = y - target * d;
    if (w.others && target < w.lifted && digit >= target) digit++;
    t.prime = target == w.lifted ? R.special : target;
    t.source = digit;
    t.place = target * w.lifted + digit;
    return t;
}

/* out = NTT(src), or base factor - NTT(src). */
template <class A> HERE void forward(const Ring &R, const Polys &src, const Polys &out, const Polys &base, const u64 *factors, const Which &w) {
    int parts = 1 << (R.logn - R.logm), part = (int)blockIdx.x % parts, item = (int)blockIdx.x / parts;
    const Turn turn = turn_of(R, w, (int)blockIdx.y);
    int size = 1 << R.logm, number = turn.prime, y = turn.place;
    i64 skip = (i64)part << R.logm;
    const Prime P = R.primes[number];
    const u64 *table = R.forward + ((i64)number << R.logn) * Table<A>::WORDS;
    const u64 *from = parts > 1 ? poly(out, item, y) : poly(src, item, turn.source);
    forward_all<A>(from + skip, memory, table, R.logm, parts + part, P);
    u64 *to = poly(out, item, y) + skip;
    const u64 *other = base.at ? poly(base, item, y) + skip : 0;
    EACH(i, size) {
        u64 r = A::end_forward(of_word<A>(memory[padded(i)]), P);
        to[i] = other ? minus(by_factor(other[i], factors, number, P.p), r, P.p) : r;
    }
}

template <class A> HERE void forward_first(const Ring &R, const Polys &src, const Polys &out, const Which &w) {
    const Turn turn = turn_of(R, w, (int)blockIdx.y);
    int item = (int)blockIdx.z, number = turn.prime, n = 1 << R.logn;
    const Prime P = R.primes[number];
    const u64 *table = R.forward + ((i64)number << R.logn) * Table<A>::WORDS, *from = poly(src, item, turn.source);
    u64 *to = poly(out, item, turn.place);
    if (R.logn - R.logm == 1) forward_outer<A, 1>(from, to, table, n, P);
    else if (R.logn - R.logm == 2) forward_outer<A, 2>(from, to, table, n, P);
    else forward_outer<A, 3>(from, to, table, n, P);
}

/* out = INTT(src), or factor INTT(src) - pending: coefficients in [0, p). */
template <class A> HERE void inverse(const Ring &R, const Polys &src, const Polys &out, const Polys &pending, const u64 *factors, const Which &w) {
    int y = (int)blockIdx.y, parts = 1 << (R.logn - R.logm), part = (int)blockIdx.x % parts, item = (int)blockIdx.x / parts;
    int size = 1 << R.logm, number = turn_of(R, w, y).prime;
    i64 skip = (i64)part << R.logm;
    const Prime P = R.primes[number];
    const u64 *table = R.inverse + ((i64)number << R.logn) * Table<A>::WORDS, *from = poly(src, item, y) + skip;
    EACH(i, size) memory[padded(i)] = word_of(A::from(from[i], P));
    SYNC();
    u64 *to = poly(out, item, y) + skip;
    const u64 *other = pending.at && parts == 1 ? poly(pending, item, y) : 0;
    inverse_all<A>(memory, table, R.logm, parts + part, P, [&](int i, typename A::word v) {
        if (parts > 1) { /* not done yet */
            to[i] = A::end_forward(v, P);
            return;
        }
        u64 r = by_factor(A::end_inverse(v, P), factors, number, P.p);
        to[i] = other ? minus(r, other[i], P.p) : r;
    });
}

template <class A> HERE void inverse_last(const Ring &R, const Polys &out, const Polys &pending, const u64 *factors, const Which &w) {
    int y = (int)blockIdx.y, item = (int)blockIdx.z, number = turn_of(R, w, y).prime, n = 1 << R.logn;
    const Prime P = R.primes[number];
    const u64 *table = R.inverse + ((i64)number << R.logn) * Table<A>::WORDS, *other = pending.at ? poly(pending, item, y) : 0;
    u64 *x = poly(out, item, y);
    if (R.logn - R.logm == 1) inverse_outer<A, 1>(x, other, factors, number, table, n, P);
    else if (R.logn - R.logm == 2) inverse_outer<A, 2>(x, other, factors, number, table, n, P);
    else inverse_outer<A, 3>(x, other, factors, number, table, n, P);
}

#define TRANSFORMS(A, name)                                                                                                       \
    KERNEL BOUNDS(256, 3) forward_##name(Ring R, Polys src, Polys out, Polys base, const u64 *factors, Which w) { forward<A>(R, src, out, base, factors, w); } \
    KERNEL forward_first_##name(Ring R, Polys src, Polys out, Which w) { forward_first<A>(R, src, out, w); }                       \
    KERNEL BOUNDS(256, 3) inverse_##name(Ring R, Polys src, Polys out, Polys pending, const u64 *factors, Which w) { inverse<A>(R, src, out, pending, factors, w); } \
    KERNEL inverse_last_##name(Ring R, Polys out, Polys pending, const u64 *factors, Which w) { inverse_last<A>(R, out, pending, factors, w); }
TRANSFORMS(Integers, integers)
TRANSFORMS(Doubles, doubles)

/* -- coefficient by coefficient: these read and write, and compute next to nothing, so that integers do for all cards ----------- */

#define COEFFICIENTS(i) for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), n_ = 1 << R.logn; i < n_; i += (int)(gridDim.x * blockDim.x))

/* Dividing by the primes from - 1, ..., to, one after the other, of which x has the coefficients: SEAL subtracts x + q_r [-x / q_r]_t and
   divides. What is to be subtracted is pending, before (or 0) and after. Component y of an item. */
template <int MOST> HERE void dropped(const Ring &R, const u64 *values, const u64 *before, u64 *after, const u64 *factors, int from, int to) {
    COEFFICIENTS(i) {
        u64 d[MOST]; /* in registers */
        UNROLL for (int k = 0; k < MOST; k++) d[k] = k < from && before ? before[((i64)k << R.logn) + i] : 0;
        UNROLL for (int r = MOST - 1; r >= 0; r--) {
            if (r >= from || r < to) continue;
            u64 p = R.primes[r].p, v = values[((i64)(r - to) << R.logn) + i];
            v = minus(by_factor(v, factors, r, p), d[r], p);
            u64 k = times(v, R.minus_inverse_t[2 * r], R.minus_inverse_t[2 * r + 1], R.t);
            const u64 *f = R.inverses + 2 * (i64)r * R.n_primes;
            UNROLL for (int j = 0; j < r; j++) {
                u64 q = R.primes[j].p;
                d[j] = plus(times(d[j] + v, f[2 * j], f[2 * j + 1], q), k, q);
            }
        }
        UNROLL for (int k = 0; k < MOST; k++)
            if (k < to) after[((i64)k << R.logn) + i] = d[k];
    }
}

HERE void dropped_many(const Ring &R, const u64 *values, const u64 *before, u64 *after, const u64 *factors, int from, int to) {
    COEFFICIENTS(i) {
        u64 d[MAX_PRIMES];
        for (int k = 0; k < from; k++) d[k] = before ? before[((i64)k << R.logn) + i] : 0;
        for (int r = from - 1; r >= to; r--) {
            u64 p = R.primes[r].p, v = values[((i64)(r - to) << R.logn) + i];
            v = minus(by_factor(v, factors, r, p), d[r], p);
            u64 k = times(v, R.minus_inverse_t[2 * r], R.minus_inverse_t[2 * r + 1], R.t);
            const u64 *f = R.inverses + 2 * (i64)r * R.n_primes;
            for (int j = 0; j < r; j++) {
                u64 q = R.primes[j].p;
                d[j] = plus(times(d[j] + v, f[2 * j], f[2 * j + 1], q), k, q);
            }
        }
        for (int k = 0; k < to; k++) after[((i64)k << R.logn) + i] = d[k];
    }
}

KERNEL drop(Ring R, Polys x, Polys pending, Polys out, const u64 *factors, int from, int to, int has) {
    i64 item = blockIdx.z;
    int c = (int)blockIdx.y;
    const u64 *values = poly(x, item, c), *before = has ? poly(pending, item, c) : 0;
    u64 *after = poly(out, item, c);
    if (from <= 4) dropped<4>(R, values, before, after, factors, from, to);
    else if (from <= 8) dropped<8>(R, values, before, after, factors, from, to);
    else dropped_many(R, values, before, after, factors, from, to);
}

/* The same for the special prime of a key switch, whose coefficients are x: pending (+)= x / p + k. Component y of two. */
KERNEL drop_special(Ring R, Polys x, Polys pending, int primes, int add0, int add1) {
    i64 item = blockIdx.z;
    int c = (int)blockIdx.y, r = R.special, add = c ? add1 : add0;
    const u64 *values = poly(x, item, c);
    u64 *after = poly(pending, item, c);
    const u64 *f = R.inverses + 2 * (i64)r * R.n_primes;
    COEFFICIENTS(i) {
        u64 v = values[i], k = times(v, R.minus_inverse_t[2 * r], R.minus_inverse_t[2 * r + 1], R.t);
        for (int j = 0; j < primes; j++) {
            u64 q = R.primes[j].p, *to = after + ((i64)j << R.logn) + i;
            u64 more = plus(times(v, f[2 * j], f[2 * j + 1], q), k, q);
            *to = add ? plus(*to, more, q) : more;
        }
    }
}

/* What a key makes of lifted digits: under target y of an item, out = base factor + sum of digit key, for both parts; under the special
   prime the sum alone. Keys are read once for several items. A digit under its own prime may be there before it was one (own). */
enum { ITEMS = 4 };
KERNEL accumulate(Ring R, Polys lifted, Polys own, const u64 *key, int digits, int key_digits, Polys base, const u64 *factors, Polys out, Polys special, int items) {
    int target = (int)blockIdx.y, last = target == digits, number = last ? R.special : target;
    i64 first = (i64)blockIdx.z * ITEMS;
    const Prime P = R.primes[number];
    const u64 *keys = key + (((i64)(last ? key_digits : target) * key_digits * 2) << R.logn);
    COEFFICIENTS(i) {
        u64 sum[ITEMS][2];
        UNROLL for (int k = 0; k < ITEMS; k++) sum[k][0] = sum[k][1] = 0;
        for (int j = 0; j < digits; j++) {
            u64 k0 = keys[((i64)(2 * j) << R.logn) + i], k1 = keys[((i64)(2 * j + 1) << R.logn) + i];
            UNROLL for (int k = 0; k < ITEMS; k++)
                if (first + k < items) {
                    u64 y = (own.at && j == target ? poly(own, first + k, j) : poly(lifted, first + k, target * digits + j))[i];
                    sum[k][0] = plus(sum[k][0], product(y, k0, P), P.p);
                    sum[k][1] = plus(sum[k][1], product(y, k1, P), P.p);
                }
        }
        UNROLL for (int k = 0; k < ITEMS; k++)
            if (first + k < items)
                for (int c = 0; c < 2; c++) {
                    i64 at = ((i64)target << R.logn) + i;
                    if (last) poly(special, first + k, c)[i] = sum[k][c];
                    else poly(out, first + k, c)[at] = plus(by_factor(poly(base, first + k, c)[at], factors, number, P.p), sum[k][c], P.p);
                }
    }
}

/* Plus and minus the twiddles of one stage, in turns, is X^h in NTT form, h = N >> level: the product of x with it. */
HERE u64 shifted(const u64 *table, u64 x, int i, int level, int logn, u64 p) {
    int run = i >> (logn - level), at = (1 << (level - 1)) + run / 2;
    u64 y = times(x, table[2 * at], table[2 * at + 1], p);
    return run & 1 && y ? p - y : y;
}

/* The beginning of an automorphism X -> X^g, whose table says where each value comes from. `even` and `odd` are nodes 2k and 2k + 1 of a
   list (pairs), or nodes k alone. With X^h odd between them, from = even - X^h odd unless it is given, and
   value = (base: even + X^h odd) + (from_0 moved, 0), top = from_1 moved. y is a prime. */
KERNEL turn(Ring R, const u64 *twiddles, Polys nodes, int pairs, int count, Polys from, const int *table, int base, int level, Polys value, Polys top) {
    i64 item = blockIdx.z;
    int prime = (int)blockIdx.y;
    u64 p = R.primes[prime].p;
    i64 skip = (i64)prime << R.logn;
    const u64 *w = twiddles + ((i64)prime << (R.logn + 1));
    int lone = !pairs || 2 * item + 1 >= count;
    i64 place = pairs ? 2 * item : item;
    const u64 *even[2] = {poly(nodes, place, 0) + skip, poly(nodes, place, 1) + skip};
    const u64 *odd[2] = {lone ? 0 : poly(nodes, place + 1, 0) + skip, lone ? 0 : poly(nodes, place + 1, 1) + skip};
    COEFFICIENTS(i) {
        int j = table[i];
        u64 moved[2], sum[2];
        for (int c = 0; c < 2; c++) {
            if (from.at) moved[c] = (poly(from, item, c) + skip)[j];
            else moved[c] = lone ? even[c][j] : minus(even[c][j], shifted(w, odd[c][j], j, level, R.logn, p), p);
            sum[c] = !base ? 0 : lone ? even[c][i] : plus(even[c][i], shifted(w, odd[c][i], i, level, R.logn, p), p);
        }
        (poly(value, item, 0) + skip)[i] = plus(sum[0], moved[0], p);
        (poly(value, item, 1) + skip)[i] = sum[1];
        (poly(top, item, 0) + skip)[i] = moved[1];
    }
}

/* A node in two: even = node + moved, and (where the item has a place for it) odd = (node - moved) / X^h. y is prime and component. */
KERNEL split(Ring R, const u64 *twiddles, Polys nodes, Polys moved, Polys even, Polys odd, int odds, int level, int primes) {
    i64 item = blockIdx.z;
    int prime = (int)blockIdx.y % primes, c = (int)blockIdx.y / primes;
    u64 p = R.primes[prime].p;
    i64 skip = (i64)prime << R.logn;
    const u64 *w = twiddles + ((i64)prime << (R.logn + 1));
    const u64 *a = poly(nodes, item, c) + skip, *b = poly(moved, item, c) + skip;
    u64 *e = poly(even, item, c) + skip, *o = item < odds ? poly(odd, item, c) + skip : 0;
    COEFFICIENTS(i) {
        u64 x = a[i], y = b[i];
        e[i] = plus(x, y, p);
        if (o) o[i] = shifted(w, minus(x, y, p), i, level, R.logn, p);
    }
}

/* out = src factor; y is prime and component. The unsigned at `wrong` becomes the first item that has a number which is no residue. */
KERNEL scaled(Ring R, Polys src, Polys out, const u64 *factors, int primes, unsigned *wrong) {
    i64 item = blockIdx.z;
    int prime = (int)blockIdx.y % primes, c = (int)blockIdx.y / primes;
    u64 p = R.primes[prime].p;
    const u64 *a = poly(src, item, c) + ((i64)prime << R.logn);
    u64 *o = poly(out, item, c) + ((i64)prime << R.logn);
    COEFFICIENTS(i) {
        if (wrong && a[i] >= p) atomicMin(wrong, (unsigned)item);
        o[i] = by_factor(a[i], factors, prime, p);
    }
}

/* -- single ciphertexts, (size, primes, N) each, one after the other ---------------------------------------------------------------- */

/* A sum of `count` ciphertexts: words are their places, their sizes, a factor with its quotient for each under each prime, and at last a
   constant, which is added to the first polynomial. y is prime and component. */
KERNEL combined(Ring R, const u64 *words, u64 *out, int count, int primes) {
    int prime = (int)blockIdx.y % primes, c = (int)blockIdx.y / primes;
    u64 p = R.primes[prime].p;
    const u64 *sizes = words + count, *factors = sizes + count;
    i64 skip = (i64)((int)blockIdx.y) << R.logn;
    COEFFICIENTS(i) {
        u64 sum = c ? 0 : factors[2 * (count * primes + prime)];
        for (int j = 0; j < count; j++)
            if (c < (int)sizes[j]) sum = plus(sum, by_factor(((const u64 *)words[j])[skip + i], factors, j * primes + prime, p), p);
        out[skip + i] = sum;
    }
}

/* The product of ciphertexts of na and nb polynomials, in NTT form; y is a prime. */
KERNEL multiplied(Ring R, const u64 *a, int na, const u64 *b, int nb, u64 *out, int primes) {
    int prime = (int)blockIdx.y;
    const Prime P = R.primes[prime];
    i64 apart = (i64)primes << R.logn, skip = (i64)prime << R.logn;
    COEFFICIENTS(i) {
        for (int k = 0; k < na + nb - 1; k++) {
            u64 sum = 0;
            for (int j = k - nb + 1 > 0 ? k - nb + 1 : 0; j <= (k < na - 1 ? k : na - 1); j++)
                sum = plus(sum, product(a[j * apart + skip + i], b[(k - j) * apart + skip + i], P), P.p);
            out[k * apart + skip + i] = sum;
        }
    }
}

/* 1 at some places. */
KERNEL marked(u64 *out, const int *places, int count) {
    for (int x = (int)(blockIdx.x * blockDim.x + threadIdx.x); x < count; x += (int)(gridDim.x * blockDim.x)) out[places[x]] = 1;
}

/* A polynomial modulo t, between -t/2 and t/2, under every prime; y is one of them. */
KERNEL lifted(Ring R, const u64 *plain, u64 *out) {
    const Prime P = R.primes[blockIdx.y];
    u64 *to = out + ((i64)blockIdx.y << R.logn);
    COEFFICIENTS(i) {
        u64 x = plain[i];
        to[i] = 2 * x > R.t ? minus(0, any_below(R.t - x, P), P.p) : any_below(x, P);
    }
}

/* -- sums over rows: tapes, as circuits/devices/native/tape.py writes them -------------------------------------------------------- */

enum { LOAD, LINEAR, PRODUCT, ADD };
enum { PLUS = -1, MINUS = -2 };

struct Rows {
    const Prime *primes;
    const int *tape, *segments, *totals; /* segments: begin, end, first and last total; totals: size, local, component. Instructions name the local sum of a total, or its component: see sums.py */
    const u64 *constants;  /* [prime][run][constant]: X to a power is constant in each of n_runs runs of coefficients */
    const u64 *const *columns; /* [chunk][column]: (2, primes, width) residues each */
    u64 *shared;           /* [chunk][vector][prime][width], in the form of the arithmetic */
    u64 *out;              /* [component][prime][width] residues */
    unsigned *wrong;       /* the first column that has a number which is no residue */
    u64 *scratch;          /* for temporary vectors and sums over chunks, where blocks have no room for them */
    i64 width, n_scratch;  /* words of a thread */
    i64 start, run_width;  /* the first coefficient, and those of a run */
    int n_primes, n_columns, n_constants, n_shared, n_temporary, n_chunks, first_prime, add, n_code, n_runs; /* n_code: words that instructions take */
};

/* What a thread works on at a time, `LANES` of it: coefficients of one chunk that are a block apart, or one coefficient of several
   chunks (MANY). Instructions are read once for all of them, and sums over chunks are brought back once. */
template <class A, int LANES, int MANY> struct Lanes {
    typedef typename A::word W;
    const Rows &J;
    const Prime &P;
    u64 *scratch; /* of the block: temporary vectors, then sums over chunks */
    i64 x;
    int prime, chunk, threads, t, valid;

    struct Place { u64 *at; i64 apart, lane; };

    /* Vector v: shared by all segments, in the card's memory, or temporary, in the block's. Lanes without anything to do read the first. */
    INSIDE Place place(int v) const {
        Place p;
        if (v >= J.n_shared) {
            p.apart = LANES * threads, p.lane = threads;
            p.at = scratch + (i64)(v - J.n_shared) * LANES * threads + t;
        } else {
            p.apart = J.n_primes * J.width, p.lane = MANY ? J.n_shared * p.apart : threads;
            p.at = J.shared + ((i64)chunk * J.n_shared + v) * p.apart + prime * J.width + x;
        }
        return p;
    }
    INSIDE i64 lane(const Place &p, int v, int g) const { return v >= J.n_shared || g < valid ? g * p.lane : 0; }

    INSIDE u64 *local(int k) const { return scratch + (i64)(J.n_temporary * LANES + k) * threads + t; }
    INSIDE void into_sum(int total, int k, W sum) const { /* |sum| < 2^52 */
        u64 *to = local(total + k);
        *to = word_of(chunk == 0 ? A::tidy(sum, P) : A::add(of_word<A>(*to), sum, P));
    }
    INSIDE void write(int total, int k, W r, int g) const {
        if (g < valid) J.out[((i64)(total + k) * J.n_primes + prime) * J.width + x + g * threads] = A::to(r, P);
    }

    INSIDE W constant(int number, int g) const {
        int run = J.n_runs == 1 ? 0 : (int)((J.start + x + (MANY ? 0 : g * threads)) / J.run_width);
        if (run >= J.n_runs) run = 0; /* of a lane that has nothing to do */
        return A::from(J.constants[((i64)prime * J.n_runs + run) * J.n_constants + number], P);
    }

    INSIDE void linear(const int *word) const {
        Place to = place(word[1]);
        for (int g = 0; g < LANES; g++)
            for (int k = 0; k < word[2]; k++) {
                W sum = k == 0 && word[3] >= 0 ? constant(word[3], g) : A::from(0, P);
                for (int term = 0; term < word[4]; term++) {
                    const int *one = word + 5 + 3 * term;
                    if (k >= one[2]) continue;
                    Place from = place(one[1]);
                    W y = of_word<A>(from.at[k * from.apart + lane(from, one[1], g)]);
                    if (one[0] == PLUS) sum = A::add(sum, y, P);
                    else if (one[0] == MINUS) sum = A::subtract(sum, y, P);
                    else sum = A::add(sum, A::multiply(y, constant(one[0], g), P), P);
                }
                to.at[k * to.apart + g * to.lane] = word_of(sum);
            }
    }

    template <int COUNT> INSIDE void load(W *a, const Place &p, int v, int g) const {
        const u64 *from = p.at + lane(p, v, g);
        UNROLL for (int k = 0; k < COUNT; k++) a[k] = of_word<A>(from[k * p.apart]);
    }
    /* The factor of the next product, read while this one is computed, if it is shared. */
    struct Factor { W b[LANES][2]; };
    INSIDE void read_ahead(Factor &f, const int *word, const int *end) const {
        if (word >= end || word[0] != PRODUCT || word[6] >= J.n_shared) return;
        Place p = place(word[6]);
        UNROLL for (int g = 0; g < LANES; g++) load<2>(f.b[g], p, word[6], g);
    }
    /* A factor is to be small: what was shared is, and what is temporary is made so. */
    INSIDE void read_temporary(Factor &f, const int *word) const {
        if (word[6] < J.n_shared) return;
        Place p = place(word[6]);
        UNROLL for (int g = 0; g < LANES; g++) {
            load<2>(f.b[g], p, word[6], g);
            f.b[g][0] = A::tidy(f.b[g][0], P), f.b[g][1] = A::tidy(f.b[g][1], P);
        }
    }

    /* to = a b; rest = a - a b; sum += a b: those that are not -1, for a factor b of two components. All in registers. */
    template <int NA> INSIDE void multiply(const int *word, const Factor &f) const {
        int total = word[3];
        Place from_a = place(word[4]);
        W sum[NA + 1];
        if (MANY && word[1] < 0 && word[2] < 0) {
            UNROLL for (int pair = 0; pair < LANES; pair += 2) {
                if (pair >= valid) break;
                typename A::Sum s[NA + 1];
                UNROLL for (int k = 0; k <= NA; k++) s[k] = A::nothing(P);
                UNROLL for (int g = pair; g < pair + 2; g++) {
                    if (g >= valid) break;
                    W a[NA];
                    const W *b = f.b[g];
                    load<NA>(a, from_a, word[4], g);
                    UNROLL for (int k = 0; k < NA; k++) A::more(s[k], a[k], b[0]), A::more(s[k + 1], a[k], b[1]);
                }
                UNROLL for (int k = 0; k <= NA; k++) {
                    W r = A::end(s[k], P);
                    sum[k] = pair ? A::together(sum[k], r, P) : r;
                }
            }
        } else {
            Place to = word[1] < 0 ? from_a : place(word[1]), rest = word[2] < 0 ? from_a : place(word[2]);
            UNROLL for (int g = 0; g < LANES; g++) {
                W a[NA];
                const W *b = f.b[g];
                load<NA>(a, from_a, word[4], g);
                UNROLL for (int k = 0; k <= NA; k++) {
                    W r = k == NA ? A::loosely(a[NA - 1], b[1], P) : A::loosely(a[k < NA ? k : 0], b[0], P);
                    if (k > 0 && k < NA) r = A::together(r, A::loosely(a[k > 0 ? k - 1 : 0], b[1], P), P);
                    if (word[1] >= 0) to.at[k * to.apart + g * to.lane] = word_of(r);
                    if (word[2] >= 0) rest.at[k * rest.apart + g * rest.lane] = word_of(A::subtract(k < NA ? a[k < NA ? k : 0] : A::from(0, P), r, P));
                    if (!MANY && total >= 0) write(total, k, r, g);
                    if (MANY) sum[k] = g == 0 ? r : g < valid ? A::together(sum[k], r, P) : sum[k];
                }
            }
        }
        if (MANY && total >= 0)
            UNROLL for (int k = 0; k <= NA; k++) into_sum(total, k, sum[k]);
    }

    INSIDE void multiply_any(const int *word) const {
        int total = word[3];
        Place from_a = place(word[4]), from_b = place(word[6]);
        Place to = word[1] < 0 ? from_a : place(word[1]), rest = word[2] < 0 ? from_a : place(word[2]);
        int na = word[5], nb = word[7];
        for (int k = 0; k < na + nb - 1; k++) {
            W sum = A::from(0, P);
            for (int g = 0; g < LANES; g++) {
                const u64 *a = from_a.at + lane(from_a, word[4], g), *b = from_b.at + lane(from_b, word[6], g);
                W r = A::from(0, P);
                for (int j = k - nb + 1 > 0 ? k - nb + 1 : 0; j <= (k < na - 1 ? k : na - 1); j++)
                    r = A::add(r, A::multiply(of_word<A>(a[j * from_a.apart]), A::tidy(of_word<A>(b[(k - j) * from_b.apart]), P), P), P);
                if (word[1] >= 0) to.at[k * to.apart + g * to.lane] = word_of(r);
                if (word[2] >= 0) rest.at[k * rest.apart + g * rest.lane] = word_of(A::subtract(k < na ? of_word<A>(a[k * from_a.apart]) : A::from(0, P), r, P));
                if (!MANY && total >= 0) write(total, k, r, g);
                if (g < valid) sum = A::together(sum, r, P);
            }
            if (MANY && total >= 0) into_sum(total, k, sum);
        }
    }

    INSIDE void add(const int *word) const {
        int total = word[1];
        Place from = place(word[2]);
        for (int k = 0; k < word[3]; k++) {
            W sum = A::from(0, P);
            for (int g = 0; g < valid; g++) {
                W y = of_word<A>(from.at[k * from.apart + lane(from, word[2], g)]);
                if (!MANY) write(total, k, y, g);
                sum = A::together(sum, y, P);
            }
            if (MANY) into_sum(total, k, sum);
        }
    }

    INSIDE void run(const int *word, const int *end) const {
        Factor f = {}, next = {};
        read_ahead(f, word, end);
        while (word < end) {
            if (word[0] == PRODUCT) {
                read_temporary(f, word);
                read_ahead(next, word + 8, end);
                switch (word[7] == 2 ? word[5] : 0) {
                case 2: multiply<2>(word, f); break;
                case 3: multiply<3>(word, f); break;
                case 4: multiply<4>(word, f); break;
                case 5: multiply<5>(word, f); break;
                default: multiply_any(word);
                }
                word += 8;
                UNROLL for (int g = 0; g < LANES; g++) f.b[g][0] = next.b[g][0], f.b[g][1] = next.b[g][1];
                continue;
            }
            if (word[0] == LINEAR) {
                linear(word);
                word += 5 + 3 * word[4];
            } else { /* ADD */
                add(word);
                word += 4;
            }
            read_ahead(f, word, end);
        }
    }
};

/* The prologue: columns of a chunk (z) under a prime (y), checked and in the form of the arithmetic, and what many segments share. */
template <class A> HERE void prologue(const Rows &J) {
    int prime = (int)blockIdx.y, chunk = (int)blockIdx.z;
    const Prime P = J.primes[J.first_prime + prime];
    for (i64 x = (i64)blockIdx.x * blockDim.x + threadIdx.x; x < J.width; x += (i64)gridDim.x * blockDim.x) {
        for (const int *word = J.tape + J.segments[0], *end = J.tape + J.segments[1]; word < end;) {
            if (word[0] == LOAD) {
                int column = chunk * J.n_columns + word[2];
                const u64 *from = J.columns[column] + prime * J.width + x;
                i64 apart = J.n_primes * J.width;
                u64 *to = J.shared + ((i64)chunk * J.n_shared + word[1]) * apart + prime * J.width + x;
                for (int k = 0; k < 2; k++) {
                    u64 y = from[k * (i64)J.n_primes * J.width];
                    if (y >= P.p) atomicMin(J.wrong, (unsigned)(column * J.n_primes + prime)), y = 0;
                    to[k * apart] = word_of(A::from(y, P));
                }
                word += 3;
            } else {
                Lanes<A, 1, 0> one = {J, P, memory, x, prime, chunk, 1, 0, 1};
                one.linear(word);
                word += 5 + 3 * word[4];
            }
        }
    }
}

/* A segment (x) of the tape over all chunks, for a block of coefficients (y) under a prime (z). The block has the instructions and its
   vectors at hand, or these (SPILLED) in the card's memory. */
template <class A, int LANES, int MANY, int SPILLED> HERE void sums(const Rows &J) {
    int segment = (int)blockIdx.x + 1, prime = (int)blockIdx.z, threads = (int)blockDim.x, t = (int)threadIdx.x;
    const Prime P = J.primes[J.first_prime + prime];
    const int *begin = J.tape + J.segments[4 * segment];
    int length = J.segments[4 * segment + 1] - J.segments[4 * segment];
    if (J.n_code) {
        EACH(i, length) ((int *)memory)[i] = begin[i];
        SYNC();
        begin = (const int *)memory;
    }
    i64 block = ((i64)prime * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    u64 *scratch = SPILLED ? J.scratch + block * J.n_scratch * threads : memory + J.n_code;
    i64 x = (i64)blockIdx.y * threads * (MANY ? 1 : LANES) + t;
    if (x >= J.width) return; /* there is nothing to wait for */
    int valid = 0;
    if (!MANY) for (int g = 0; g < LANES; g++) valid += x + (i64)g * threads < J.width;
    for (int chunk = 0; chunk < J.n_chunks; chunk += MANY ? LANES : 1) {
        if (MANY) valid = J.n_chunks - chunk < LANES ? J.n_chunks - chunk : LANES;
        Lanes<A, LANES, MANY> lanes = {J, P, scratch, x, prime, chunk, threads, t, valid};
        lanes.run(begin, begin + length);
    }
    if (!MANY) return;
    for (int total = J.segments[4 * segment + 2]; total < J.segments[4 * segment + 3]; total++) {
        const int *facts = J.totals + 3 * total;
        for (int k = 0; k < facts[0]; k++) {
            u64 *to = J.out + ((i64)(facts[2] + k) * J.n_primes + prime) * J.width + x;
            u64 r = A::to(of_word<A>(scratch[(i64)(J.n_temporary * LANES + facts[1] + k) * threads + t]), P);
            *to = J.add ? plus(*to, r, P.p) : r;
        }
    }
}

#define ROWS(A, name)                                                                                                             \
    KERNEL BOUNDS(128, 4) prologue_##name(Rows J) { prologue<A>(J); }                                                             \
    KERNEL BOUNDS(128, 3) one_##name(Rows J) { sums<A, 4, 0, 0>(J); }                                                             \
    KERNEL BOUNDS(128, 3) one_spilled_##name(Rows J) { sums<A, 4, 0, 1>(J); }                                                     \
    KERNEL BOUNDS(128, 3) four_##name(Rows J) { sums<A, 4, 1, 0>(J); }                                                            \
    KERNEL BOUNDS(128, 3) four_spilled_##name(Rows J) { sums<A, 4, 1, 1>(J); }
ROWS(Integers, integers)
ROWS(Doubles, doubles)

/* -- trees: totals of products along the paths of binary trees, at most three factors deep, in registers -------------------------------- */

/* One tree: the vectors of its root and of the factors of its nodes, node i above nodes 2 i (what is inside the factor) and 2 i + 1 (what
   is not), and where the sums of root and nodes go; -1 where there is none. Written by branchings.py. */
struct Branching { int root, root_total, factor[7], total[7]; };

template <class A> struct Path {
    typedef typename A::word W;
    const Rows &J;
    const Prime &P;
    const u64 *at; /* the first vector, of this chunk */
    i64 apart;

    INSIDE void load(W *a, int v) const {
        UNROLL for (int k = 0; k < 2; k++) a[k] = of_word<A>(at[(v + k) * apart]);
    }
    /* inside = a b, and what is left of a; sums of both are never brought back here */
    template <int NA> INSIDE void node(const W *a, int v, W *inside, W *outside, W *sum) const {
        W b[2];
        load(b, v);
        UNROLL for (int k = 0; k <= NA; k++) {
            W r = k == NA ? A::loosely(a[NA - 1], b[1], P) : A::loosely(a[k < NA ? k : 0], b[0], P);
            if (k > 0 && k < NA) r = A::together(r, A::loosely(a[k > 0 ? k - 1 : 0], b[1], P), P);
            inside[k] = r;
            outside[k] = A::apart(k < NA ? a[k < NA ? k : 0] : A::from(0, P), r, P);
            sum[k] = A::together(sum[k], r, P);
        }
    }
    INSIDE void leaf(const W *a, int v, typename A::Sum *sum) const {
        if (v < 0) return;
        W b[2];
        load(b, v);
        UNROLL for (int k = 0; k < 4; k++) A::more(sum[k], a[k], b[0]), A::more(sum[k + 1], a[k], b[1]);
    }
};

template <class A, int SIZE> HERE void tidied(typename A::word *sum, const Prime &P) {
    UNROLL for (int k = 0; k < SIZE; k++) sum[k] = A::tidy(sum[k], P);
}
template <class A, int SIZE> HERE void written(const Rows &J, int total, const typename A::word *sum, int prime, i64 x, const Prime &P) {
    if (total < 0) return;
    UNROLL for (int k = 0; k < SIZE; k++) {
        u64 *to = J.out + ((i64)(total + k) * J.n_primes + prime) * J.width + x, r = A::to(sum[k], P);
        *to = J.add ? plus(*to, r, P.p) : r;
    }
}

template <class A> HERE void ended(const Rows &J, int total, const typename A::Sum *sum, int prime, i64 x, const Prime &P) {
    typename A::word r[5];
    UNROLL for (int k = 0; k < 5; k++) r[k] = A::end(sum[k], P);
    written<A, 5>(J, total, r, prime, x, P);
}

/* One coefficient of one tree, over all chunks; or (not MANY) of the only one, so that nothing has to be kept. */
template <class A, int MANY> HERE void branching_sums(const Rows &J, const Branching &T, int prime, i64 x) {
    typedef typename A::word W;
    const Prime P = J.primes[J.first_prime + prime];
    const W zero = A::from(0, P);
    Path<A> path = {J, P, J.shared + prime * J.width + x, J.n_primes * J.width};
    W root[2], first[3], second[2][4];
    typename A::Sum third[4][5];
    UNROLL for (int k = 0; k < 5; k++) {
        if (k < 2) root[k] = zero;
        if (k < 3) first[k] = zero;
        if (k < 4) second[0][k] = second[1][k] = zero;
        UNROLL for (int i = 0; i < 4; i++) third[i][k] = A::nothing(P);
    }
    const int pause = A::most(P) / 2; /* a sum takes two products of a chunk */
    for (int chunk = 0, since = 0; chunk < (MANY ? J.n_chunks : 1); chunk++, path.at += J.n_shared * path.apart) {
        W a[2], half[2][3], quarter[2][4];
        path.load(a, T.root);
        UNROLL for (int k = 0; k < 2; k++) root[k] = A::together(root[k], a[k], P);
        if (!MANY) written<A, 2>(J, T.root_total, root, prime, x, P);
        if (T.factor[0] >= 0) {
            path.template node<2>(a, T.factor[0], half[0], half[1], first);
            if (!MANY) written<A, 3>(J, T.total[0], first, prime, x, P);
            UNROLL for (int i = 0; i < 2; i++) {
                if (T.factor[1 + i] < 0) continue;
                path.template node<3>(half[i], T.factor[1 + i], quarter[0], quarter[1], second[i]);
                if (!MANY) written<A, 4>(J, T.total[1 + i], second[i], prime, x, P);
                UNROLL for (int j = 0; j < 2; j++) {
                    path.leaf(quarter[j], T.factor[3 + 2 * i + j], third[2 * i + j]);
                    if (!MANY) ended<A>(J, T.total[3 + 2 * i + j], third[2 * i + j], prime, x, P);
                }
            }
        }
        if (!MANY || ++since < pause) continue;
        since = 0;
        tidied<A, 2>(root, P), tidied<A, 3>(first, P), tidied<A, 4>(second[0], P), tidied<A, 4>(second[1], P);
        UNROLL for (int i = 0; i < 4; i++)
            UNROLL for (int k = 0; k < 5; k++) A::begin(third[i][k], A::tidy(A::end(third[i][k], P), P), P);
    }
    if (!MANY) return;
    written<A, 2>(J, T.root_total, root, prime, x, P);
    written<A, 3>(J, T.total[0], first, prime, x, P);
    UNROLL for (int i = 0; i < 2; i++) written<A, 4>(J, T.total[1 + i], second[i], prime, x, P);
    UNROLL for (int i = 0; i < 4; i++) ended<A>(J, T.total[3 + i], third[i], prime, x, P);
}

/* Trees (x), `together` of them a block, which mostly have the same factors, for some coefficients (y) under a prime (z). */
template <class A, int MANY> HERE void branchings(const Rows &J, const Branching *all, int count, int together) {
    int each = (int)blockDim.x / together, t = (int)threadIdx.x; /* none, where a thread does all */
    i64 x = each ? (i64)blockIdx.y * each + t % each : (i64)blockIdx.y;
    int first = (int)blockIdx.x * together, end = first + together < count ? first + together : count;
    if (x >= J.width) return;
    for (int number = first + (each ? t / each : 0); number < end; number += each ? together : 1)
        branching_sums<A, MANY>(J, all[number], (int)blockIdx.z, x);
}
/* Four blocks at a time leave 128 registers for a thread, which spills some sums: on an H200 that is faster than three, and than two. */
#define BRANCHINGS(A, name)                                                                                                            \
    KERNEL BOUNDS(128, 4) branchings_one_##name(Rows J, const Branching *all, int count, int together) { branchings<A, 0>(J, all, count, together); } \
    KERNEL BOUNDS(128, 4) branchings_##name(Rows J, const Branching *all, int count, int together) { branchings<A, 1>(J, all, count, together); }
BRANCHINGS(Integers, integers)
BRANCHINGS(Doubles, doubles)

/* Sums (z) of the parts that places[ends[z]], ... name, for some coefficients (x) under a prime (y). */
KERNEL gathered(const Prime *primes, const u64 *parts, u64 *sums, const int *ends, const int *places, i64 width, int n_primes) {
    int prime = (int)blockIdx.y, number = (int)blockIdx.z;
    u64 p = primes[prime].p;
    for (i64 x = (i64)blockIdx.x * blockDim.x + threadIdx.x; x < width; x += (i64)gridDim.x * blockDim.x) {
        u64 sum = 0;
        for (int i = ends[number]; i < ends[number + 1]; i++) sum = plus(sum, parts[((i64)places[i] * n_primes + prime) * width + x], p);
        sums[((i64)number * n_primes + prime) * width + x] = sum;
    }
}

/* Whether sums hide anything, as a few of their coefficients tell: x is a total, whose bits are gathered in found[x]. */
KERNEL hidden(const u64 *sums, const int *totals, u64 *found, i64 apart, int count) {
    for (int x = (int)(blockIdx.x * blockDim.x + threadIdx.x); x < count; x += (int)(gridDim.x * blockDim.x)) {
        u64 seen = 0;
        for (int k = 1; k < totals[3 * x]; k++)
            for (int i = 0; i < 4; i++) seen |= sums[(i64)(totals[3 * x + 2] + k) * apart + i];
        found[x] = seen;
    }
}
