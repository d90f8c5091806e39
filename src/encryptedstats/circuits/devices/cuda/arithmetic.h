/* Arithmetic modulo primes, in functions that compile for the graphics card and for any other processor: tests run them there.
 *
 * Two kinds give the same residues:
 *
 *     Doubles   for p < 2^49, on cards whose FP64 units are as fast as the others: integers in doubles between about -p/2 and p/2.
 *               h = a b and l = fma(a, b, -h) are the exact product, and with c next to h / p, fma(-c, p, h) + l is exact.
 *               Never to be compiled with contraction (--fmad=true) or fast mathematics
 *     Integers  for p < 2^60, on any card: words in [0, p), Shoup's product for factors that are known before, else Barrett's
 */
#ifndef ENCRYPTEDSTATS_ARITHMETIC
#define ENCRYPTEDSTATS_ARITHMETIC

#ifdef __CUDACC__
#define HERE static __device__ __forceinline__
#define INSIDE __device__ __forceinline__
typedef unsigned long long u64;
typedef long long i64;
HERE u64 high(u64 a, u64 b) { return __umul64hi(a, b); }
HERE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
HERE double as_double(u64 x) { return __longlong_as_double((long long)x); }
HERE u64 as_word(double x) { return (u64)__double_as_longlong(x); }
#else
#include <cstdint>
#include <cstring>
#define HERE static inline
#define INSIDE inline
typedef uint64_t u64;
typedef int64_t i64;
HERE u64 high(u64 a, u64 b) { return (u64)(((unsigned __int128)a * b) >> 64); }
HERE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
HERE double as_double(u64 x) { double y; std::memcpy(&y, &x, 8); return y; }
HERE u64 as_word(double x) { u64 y; std::memcpy(&y, &x, 8); return y; }
#endif

/* One prime, as circuits/devices/cuda/ring.py writes it. */
struct Prime {
    u64 p;
    u64 barrett;   /* floor(2^(63 + bits) / p) */
    u64 quotient;  /* floor((2^64 - 1) / p) */
    u64 bits;
    double pd, inverse; /* p and 1/p */
    u64 scale, scale_q; /* w = 1/N and floor(2^64 w / p): what ends an inverse transform */
    double scale_d;     /* w between -p/2 and p/2 */
    double grid;        /* 1.5 2^(bits + 52): adding it rounds to multiples of 2^bits */
};

HERE u64 below(u64 x, u64 p) { return x >= p ? x - p : x; }
HERE u64 plus(u64 a, u64 b, u64 p) { return below(a + b, p); }
HERE u64 minus(u64 a, u64 b, u64 p) { return a >= b ? a - b : a + p - b; }
/* x w modulo p, or p more, with q = floor(2^64 w / p): Shoup. */
HERE u64 loose(u64 x, u64 w, u64 q, u64 p) { return x * w - high(x, q) * p; }
HERE u64 times(u64 x, u64 w, u64 q, u64 p) { return below(loose(x, w, q, p), p); }
HERE u64 any_below(u64 x, const Prime &P) { return below(x - high(x, P.quotient) * P.p, P.p); }

/* (first 64 bits, last 64 bits) modulo p, for numbers below 2^(2 bits + 2): the quotient is too small by at most 2. */
HERE u64 reduced(u64 upper, u64 lower, const Prime &P) {
    int shift = (int)P.bits - 1;
    u64 q = high(upper << (64 - shift) | lower >> shift, P.barrett);
    u64 r = lower - q * P.p;
    return below(below(r, P.p), P.p);
}
HERE u64 product(u64 a, u64 b, const Prime &P) { return reduced(high(a, b), a * b, P); }

#define MAGIC 6755399441055744.0 /* 3 2^51: adding it rounds to an integer, to the nearest one */
#define LOWEST 4503599627370496.0 /* 2^52: below it, the last bits of a double are those of an integer */

struct Integers {
    typedef u64 word;
    static INSIDE word from(u64 x, const Prime &) { return x; }
    static INSIDE word from_any(u64 x, const Prime &P) { return any_below(x, P); } /* of another prime */
    static INSIDE u64 to(word x, const Prime &) { return x; }
    static INSIDE word add(word a, word b, const Prime &P) { return plus(a, b, P.p); }
    static INSIDE word subtract(word a, word b, const Prime &P) { return minus(a, b, P.p); }
    static INSIDE word multiply(word a, word b, const Prime &P) { return product(a, b, P); }
    static INSIDE word tidy(word x, const Prime &) { return x; }
    /* what comes before the next product need not be brought back */
    static INSIDE word loosely(word a, word b, const Prime &P) { return product(a, b, P); }
    static INSIDE word together(word a, word b, const Prime &P) { return plus(a, b, P.p); }
    static INSIDE word apart(word a, word b, const Prime &P) { return minus(a, b, P.p); }
    /* the sum of some products, `most` or four of them */
    static INSIDE int most(const Prime &) { return 4; }
    struct Sum { u64 upper, lower; };
    static INSIDE Sum nothing(const Prime &) { Sum s = {0, 0}; return s; }
    static INSIDE void begin(Sum &s, word x, const Prime &) { s.upper = 0, s.lower = x; }
    static INSIDE void more(Sum &s, word a, word b) {
        u64 low = a * b;
        s.lower += low;
        s.upper += high(a, b) + (s.lower < low);
    }
    static INSIDE word end(const Sum &s, const Prime &P) { return reduced(s.upper, s.lower, P); }

    /* Transforms: values below 4p (forward) or 2p (inverse) between the stages. */
    struct Twiddle { u64 w, q; };
    static INSIDE Twiddle twiddle(const u64 *table, int i) { Twiddle t = {table[2 * i], table[2 * i + 1]}; return t; }
    static INSIDE word begin_forward(word x, const Prime &) { return x; }
    static INSIDE void forward(word &x, word &y, Twiddle t, const Prime &P) {
        u64 p2 = 2 * P.p, u = below(x, p2), v = loose(y, t.w, t.q, P.p);
        x = u + v;
        y = u + p2 - v;
    }
    static INSIDE u64 end_forward(word x, const Prime &P) { return below(below(x, 2 * P.p), P.p); }
    static INSIDE word begin_inverse(word x, const Prime &) { return x; }
    static INSIDE void inverse(word &x, word &y, Twiddle t, const Prime &P) {
        u64 p2 = 2 * P.p, u = x, v = y;
        x = below(u + v, p2);
        y = loose(u + p2 - v, t.w, t.q, P.p);
    }
    static INSIDE u64 end_inverse(word x, const Prime &P) { return times(x, P.scale, P.scale_q, P.p); }
};

struct Doubles {
    typedef double word;
    /* Between -p/2 and p/2, but for rounding: exact, for integers |x| <= 2^53. */
    static INSIDE double centred(double x, const Prime &P) { return fused(-(fused(x, P.inverse, MAGIC) - MAGIC), P.pd, x); }
    static INSIDE double exact(u64 x) { return as_double(x | 0x4330000000000000ull) - LOWEST; } /* x < 2^52 */
    /* The product modulo p, |a| <= 2^53 / 8 or so and |b| <= 0.51 p: the quotient is wrong by 1/2 and |a| 2^-53, so that it is below
       p (1/2 + |a| 2^-53) in size; all steps are between integers below 2^53, but for h, whose error is l. */
    static INSIDE double times(double a, double b, const Prime &P) {
        double h = a * b, l = fused(a, b, -h);
        return fused(-(fused(h, P.inverse, MAGIC) - MAGIC), P.pd, h) + l;
    }
    static INSIDE word from(u64 x, const Prime &P) { return centred(exact(x), P); }
    static INSIDE word from_any(u64 x, const Prime &P) { return centred(exact(x), P); } /* of another prime below 2^50 */
    static INSIDE u64 to(word x, const Prime &P) {
        double r = centred(x, P);
        r = r < 0 ? r + P.pd : r;
        r = r >= P.pd ? r - P.pd : r;
        return as_word(r + LOWEST) & 0x000fffffffffffffull;
    }
    static INSIDE word add(word a, word b, const Prime &P) { return centred(a + b, P); }
    static INSIDE word subtract(word a, word b, const Prime &P) { return centred(a - b, P); }
    static INSIDE word multiply(word a, word b, const Prime &P) { return centred(times(a, b, P), P); }
    static INSIDE word tidy(word x, const Prime &P) { return centred(x, P); }
    /* |a| <= 1.35 p and |b| <= 0.51 p give at most 0.67 p, and two of them together 1.35 p again */
    static INSIDE word loosely(word a, word b, const Prime &P) { return times(a, b, P); }
    static INSIDE word together(word a, word b, const Prime &) { return a + b; }
    /* Differences that only products are made of, one after another, at most twice: below 47 bits they stay under 4 p <= 2^49. */
    static INSIDE word apart(word a, word b, const Prime &P) { return P.bits > 47 ? centred(a - b, P) : a - b; }
    /* Products of such: their multiples of 2^bits on top of `grid`, and exactly what is left of each, which is at most 2^(bits - 1). As many
       as `most`, and four of the numbers above, are below 2^(bits + 51) together, so that adding to them rounds to 2^bits still; their
       quotient by p is below 2^51, and what is left of all of them below 2^50. */
    static INSIDE int most(const Prime &P) { return 1 << (50 - (P.bits < 40 ? 40 : (int)P.bits)); }
    struct Sum { double upper, lower; };
    static INSIDE Sum nothing(const Prime &P) { Sum s = {P.grid, 0.0}; return s; }
    static INSIDE void begin(Sum &s, word x, const Prime &P) { s.upper = P.grid, s.lower = x; }
    static INSIDE void more(Sum &s, word a, word b) {
        double next = fused(a, b, s.upper);
        s.lower += fused(a, b, -(next - s.upper));
        s.upper = next;
    }
    static INSIDE word end(const Sum &s, const Prime &P) { return centred(s.upper - P.grid, P) + s.lower; }

    /* Transforms: a stage adds up to p (1/2 + |x| 2^-53) to a value, forwards, and doubles it, backwards. Four stages of either stay below
       8 p, and then values are centred again; forwards, 14 stages stay below 14 p, which p < 2^47 leaves room for. */
    typedef double Twiddle;
    static INSIDE Twiddle twiddle(const u64 *table, int i) { return as_double(table[i]); }
    static INSIDE word begin_forward(word x, const Prime &P) { return P.bits > 47 ? centred(x, P) : x; }
    static INSIDE void forward(word &x, word &y, Twiddle t, const Prime &P) {
        double u = x, v = times(y, t, P);
        x = u + v;
        y = u - v;
    }
    static INSIDE u64 end_forward(word x, const Prime &P) { return to(x, P); }
    static INSIDE word begin_inverse(word x, const Prime &P) { return centred(x, P); }
    static INSIDE void inverse(word &x, word &y, Twiddle t, const Prime &P) {
        double u = x, v = y;
        x = u + v;
        y = times(u - v, t, P);
    }
    static INSIDE u64 end_inverse(word x, const Prime &P) { return to(times(centred(x, P), P.scale_d, P), P); }
};
#endif
