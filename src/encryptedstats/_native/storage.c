/* Between stored bytes and residues: hashing, packing to bits, expanding seeds, and the one multiply-add that re-bases a ciphertext.
 *
 * Pieces of a block are hashed, and second polynomials expanded from their seeds, by SHAKE-256 (FIPS 202), as many at a time as a
 * vector has words: 8 with AVX-512, 4 with AVX2, 2 with NEON, 1 on any processor. What is computed does not depend on it, and is what
 * storage/bitpack.py, crypto/seeded.py and hashlib compute without this file. Nothing here draws random numbers. Python's lock is
 * released while anything large is done; every length is checked before.
 *
 * The second half of this file is compiled once for each width of vectors.
 */
#ifndef LANES
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "stored words are little-endian: on this machine NumPy does what this file does"
#endif
_Static_assert(sizeof(Py_ssize_t) == 8, "lengths are 64 bits here: on this machine NumPy does what this file does");

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
typedef uint64_t __attribute__((aligned(1), may_alias)) Loose; /* a word at any address */

enum { STATE = 25, RATE = 17 };                        /* words of Keccak's state, and of them those that SHAKE-256 reads and writes */
enum { MAX_RUN = 1024, MAX_BITS = 63, DIGEST = 16, SEED = 32, PREFIX = 16 };
enum { MAX_WORDS = MAX_RUN / 64 * MAX_BITS, SPARE = 8 }; /* of a run; and those that are squeezed with it, for numbers that are rejected */
enum { DAMAGED, NO_RESIDUES };                         /* what can be wrong with a piece */
#if X86
enum { BASELINE, AVX2, AVX512, LEVELS };
static const char *const LEVEL_NAMES[LEVELS] = {"baseline", "avx2", "avx512"};
#elif ARM
enum { BASELINE, NEON, LEVELS };
static const char *const LEVEL_NAMES[LEVELS] = {"baseline", "neon"};
#else
enum { BASELINE, LEVELS };
static const char *const LEVEL_NAMES[LEVELS] = {"baseline"};
#endif
static const uint64_t SUFFIX = 0x1f, LAST = (uint64_t)1 << 63; /* of SHAKE's padding: what follows the message, and the end of the block */
static const char EXPANDED[PREFIX + 1] = "encryptedstats a"; /* what is hashed before a seed */

static const uint64_t ROUNDS[24] = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b, 0x0000000080000001,
    0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088, 0x0000000080008009, 0x000000008000000a,
    0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002, 0x8000000000000080,
    0x000000000000800a, 0x800000008000000a, 0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
};

/* Pieces of one prime, [run][column], and where their residues go: column after column `column_apart` words apart, the second
 * polynomial `component_apart` behind the first, runs side by side. */
typedef struct {
    uint64_t p;
    int bits;
    Py_ssize_t run, first, runs, columns; /* coefficients in a run; the number of the first run; how many of both */
    const uint8_t *packed;          /* NULL: nothing but what seeds expand to */
    const uint8_t *digests;
    const uint8_t *seeds;           /* of each column; NULL: both polynomials are packed */
    uint64_t *out;
    Py_ssize_t column_apart, component_apart;
} Pieces;

INLINE Py_ssize_t packed_words(const Pieces *job) { return job->run / 64 * job->bits; }

/* Everything before a seed's output: one block of SHAKE-256, and its padding. */
INLINE void message_of(const Pieces *job, const uint8_t *seed, Py_ssize_t run, uint64_t block[RATE])
{
    uint64_t numbers[2] = {job->p, (uint64_t)run};
    memset(block, 0, RATE * sizeof(uint64_t));
    memcpy(block, EXPANDED, PREFIX);
    memcpy(block + 2, seed, SEED);
    memcpy(block + 6, numbers, sizeof numbers);
    block[8] = SUFFIX;
    block[RATE - 1] |= LAST;
}

/* Numbers of so many bits from their words: see storage/bitpack.py. Whether one is not below p. */
INLINE int unpack(const Loose *restrict words, int bits, Py_ssize_t width, uint64_t p, uint64_t *restrict out)
{
    uint64_t mask = ((uint64_t)1 << bits) - 1, worst = 0;
    for (int i = 0; i < 64; i++) {
        int shift = i * bits % 64;
        const Loose *restrict low = words + i * bits / 64 * width, *restrict high = low + width;
        uint64_t *restrict to = out + i * width;
        if (shift + bits > 64)
            for (Py_ssize_t j = 0; j < width; j++) {
                to[j] = (low[j] >> shift | high[j] << (64 - shift)) & mask;
                worst |= p - 1 - to[j];
            }
        else
            for (Py_ssize_t j = 0; j < width; j++) {
                to[j] = low[j] >> shift & mask;
                worst |= p - 1 - to[j];
            }
    }
    return worst >> 63 != 0;
}

/* The inverse. Whether a number has more bits. */
INLINE int pack(const uint64_t *restrict numbers, int bits, Py_ssize_t width, Loose *restrict words)
{
    uint64_t all = 0;
    memset((void *)words, 0, (size_t)(8 * bits * width));
    for (int i = 0; i < 64; i++) {
        int shift = i * bits % 64;
        Loose *restrict low = words + i * bits / 64 * width, *restrict high = low + width;
        const uint64_t *restrict from = numbers + i * width;
        for (Py_ssize_t j = 0; j < width; j++) {
            all |= from[j];
            low[j] |= from[j] << shift;
        }
        if (shift + bits > 64)
            for (Py_ssize_t j = 0; j < width; j++) high[j] |= from[j] >> (64 - shift);
    }
    return all >> bits != 0;
}

#define WORD(from, lane, i) ((long long)((const Loose *)(from)[lane])[i])

#define LANES 1
#define TARGET
#define NAME(f) f##_baseline
#define vec uint64_t
#define ALL(x) (x)
#define XOR(a, b) ((a) ^ (b))
#define XOR3(a, b, c) ((a) ^ (b) ^ (c))
#define CHI(a, b, c) ((a) ^ (~(b) & (c)))
#define ROTATE(a, n) ((a) << (n) | (a) >> (64 - (n)))
#define GATHERED(from, i) (uint64_t)WORD(from, 0, i)
#include "storage.c"

#if ARM
#define LANES 2
#define TARGET
#define NAME(f) f##_neon
#define vec uint64x2_t
#define ALL(x) vdupq_n_u64(x)
#define XOR(a, b) veorq_u64(a, b)
#define XOR3(a, b, c) XOR(XOR(a, b), c)
#define CHI(a, b, c) XOR(a, vbicq_u64(c, b))
#define ROTATE(a, n) vorrq_u64(vshlq_u64(a, vdupq_n_s64(n)), vshlq_u64(a, vdupq_n_s64((n) - 64)))
#define GATHERED(from, i) vcombine_u64(vcreate_u64((uint64_t)WORD(from, 0, i)), vcreate_u64((uint64_t)WORD(from, 1, i)))
#include "storage.c"
#endif

#if X86
#define LANES 4
#define TARGET __attribute__((target("avx2")))
#define NAME(f) f##_avx2
#define vec __m256i
#define ALL(x) _mm256_set1_epi64x((long long)(x))
#define XOR(a, b) _mm256_xor_si256(a, b)
#define XOR3(a, b, c) XOR(XOR(a, b), c)
#define CHI(a, b, c) XOR(a, _mm256_andnot_si256(b, c))
#define ROTATE(a, n) _mm256_or_si256(_mm256_slli_epi64(a, n), _mm256_srli_epi64(a, 64 - (n)))
#define GATHERED(from, i) _mm256_set_epi64x(WORD(from, 3, i), WORD(from, 2, i), WORD(from, 1, i), WORD(from, 0, i))
#include "storage.c"

#define LANES 8
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl")))
#define NAME(f) f##_avx512
#define vec __m512i
#define ALL(x) _mm512_set1_epi64((long long)(x))
#define XOR(a, b) _mm512_xor_si512(a, b)
#define XOR3(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0x96)
#define CHI(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0xd2)
#define ROTATE(a, n) _mm512_rol_epi64(a, n)
#define GATHERED(from, i)                                                                                                    \
    _mm512_set_epi64(                                                                                                        \
        WORD(from, 7, i), WORD(from, 6, i), WORD(from, 5, i), WORD(from, 4, i), WORD(from, 3, i), WORD(from, 2, i),          \
        WORD(from, 1, i), WORD(from, 0, i))
#include "storage.c"
#endif

/* -- re-basing ------------------------------------------------------------------------------------------------------------------ */

/* c0 + (a - fresh) secret modulo p, coefficient by coefficient: without branches or look-ups, since the secret is in it. */
static void rebase(
    uint64_t p, Py_ssize_t n, const Loose *c0, const Loose *a, const uint64_t *fresh, const uint64_t *secret, uint64_t *restrict out)
{
    int bits = 64 - __builtin_clzll(p);
    uint64_t barrett = (uint64_t)(((u128)1 << (63 + bits)) / p);
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t difference = a[i] - fresh[i];
        difference += p & (0 - (difference >> 63)); /* p < 2^62: what is negative has its upper bit set */
        u128 x = (u128)difference * secret[i] + c0[i];
        /* x < 2^(2 bits): the quotient is too small by at most 2. */
        uint64_t q = (uint64_t)(((u128)(uint64_t)(x >> (bits - 1)) * barrett) >> 64);
        uint64_t r = (uint64_t)x - q * p - p;
        r += p & (0 - (r >> 63));
        r -= p;
        out[i] = r + (p & (0 - (r >> 63)));
    }
}

/* -- Python ------------------------------------------------------------------------------------------------------------------- */

typedef struct {
    Py_ssize_t (*read)(const Pieces *);
    void (*hash)(const uint8_t *data, Py_ssize_t size, Py_ssize_t count, uint8_t *out);
    int (*pack)(const uint64_t *numbers, int bits, Py_ssize_t width, Py_ssize_t count, Loose *words);
} Machine;

static const Machine MACHINES[LEVELS] = {
    {read_baseline, hash_baseline, pack_baseline},
#if X86
    {read_avx2, hash_avx2, pack_avx2},
    {read_avx512, hash_avx512, pack_avx512},
#elif ARM
    {read_neon, hash_neon, pack_neon},
#endif
};

static int best_level(void)
{
#if X86
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2")) return BASELINE;
    int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return wide ? AVX512 : AVX2;
#else
    return LEVELS - 1; /* what it is compiled for */
#endif
}

PyDoc_STRVAR(levels_doc, "levels() -> tuple of str\n\nThe kinds of vectors that this processor has, the slowest first.");

static PyObject *py_levels(PyObject *self, PyObject *unused)
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

static const Machine *machine_of(const char *name)
{
    for (int level = 0; level <= best_level(); level++)
        if (!strcmp(name, LEVEL_NAMES[level])) return &MACHINES[level];
    PyErr_Format(PyExc_ValueError, "this processor has no level %s", name);
    return NULL;
}

/* Buffers that are given back together. */
typedef struct {
    Py_buffer views[5];
    int taken;
} Buffers;

static void *take(Buffers *all, PyObject *given, int writable, Py_ssize_t itemsize, const char *name)
{
    Py_buffer *view = &all->views[all->taken];
    if (PyObject_GetBuffer(given, view, writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO)) return NULL;
    all->taken++;
    if (itemsize == 8 && (view->itemsize != 8 || (uintptr_t)view->buf % 8)) {
        PyErr_Format(PyExc_ValueError, "%s: words of 64 bits are expected", name);
        return NULL;
    }
    return view->buf;
}

static Py_ssize_t length(const Buffers *all, int index) { return all->views[index].len; }

static void give_back(Buffers *all)
{
    while (all->taken > 0) PyBuffer_Release(&all->views[--all->taken]);
}

static int is_run(Py_ssize_t run) { return run >= 64 && run <= MAX_RUN && run % 64 == 0; }

PyDoc_STRVAR(
    hash_doc,
    "hash(level, data, size, out)\n\n"
    "The first 16 bytes of SHAKE-256 of each piece of so many bytes (a multiple of 8), one after the other. Other threads run meanwhile.");

static PyObject *py_hash(PyObject *self, PyObject *args)
{
    (void)self;
    const char *level;
    PyObject *given[2], *result = NULL;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "sOnO:hash", &level, &given[0], &size, &given[1])) return NULL;
    const Machine *machine = machine_of(level);
    if (!machine) return NULL;
    Buffers all = {.taken = 0};
    const uint8_t *data = take(&all, given[0], 0, 1, "data");
    uint8_t *out = data ? take(&all, given[1], 1, 1, "out") : NULL;
    if (!out) goto done;
    if (size < 8 || size % 8 || length(&all, 0) % size || length(&all, 1) % DIGEST || length(&all, 0) / size != length(&all, 1) / DIGEST) {
        PyErr_SetString(PyExc_ValueError, "whole pieces of a multiple of 8 bytes are hashed, each into 16 bytes");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    machine->hash(data, size, length(&all, 0) / size, out);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    give_back(&all);
    return result;
}

PyDoc_STRVAR(
    pack_doc,
    "pack(level, numbers, bits, run, out) -> bool\n\n"
    "Runs of numbers packed to their bits, one after the other; whether all of them have no more bits. Other threads run meanwhile.");

static PyObject *py_pack(PyObject *self, PyObject *args)
{
    (void)self;
    const char *level;
    PyObject *given[2], *result = NULL;
    int bits, excess;
    Py_ssize_t run;
    if (!PyArg_ParseTuple(args, "sOinO:pack", &level, &given[0], &bits, &run, &given[1])) return NULL;
    const Machine *machine = machine_of(level);
    if (!machine) return NULL;
    Buffers all = {.taken = 0};
    const uint64_t *numbers = take(&all, given[0], 0, 8, "numbers");
    Loose *out = numbers ? take(&all, given[1], 1, 1, "out") : NULL;
    if (!out) goto done;
    if (!is_run(run) || bits < 1 || bits > MAX_BITS || length(&all, 0) % (8 * run)
        || length(&all, 0) / 64 * bits != length(&all, 1)) {
        PyErr_SetString(PyExc_ValueError, "whole runs of 64 to 1024 numbers are packed, to 1 to 63 bits each");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    excess = machine->pack(numbers, bits, run / 64, length(&all, 0) / (8 * run), out);
    Py_END_ALLOW_THREADS
    result = PyBool_FromLong(!excess);
done:
    give_back(&all);
    return result;
}

PyDoc_STRVAR(
    read_doc,
    "read(level, modulus, (run, first, runs, columns), packed, digests, seeds, out, (offset, column_apart, component_apart)) -> int\n\n"
    "Pieces of one prime, [run][column], checked by their digests, to residues in words. With seeds, 32 bytes a column, the second\n"
    "polynomial is expanded; without, it is packed behind the first. Without anything packed, only second polynomials are expanded.\n"
    "Runs are counted from `first`. Returns -1, or the index of a bad piece, doubled: damaged; plus one: with something that is no\n"
    "residue. Other threads run meanwhile.");

static PyObject *py_read(PyObject *self, PyObject *args)
{
    (void)self;
    const char *level;
    PyObject *number, *given[4], *result = NULL;
    Pieces job;
    Py_ssize_t offset, bad;
    if (!PyArg_ParseTuple(
            args, "sO(nnnn)OOOO(nnn):read", &level, &number, &job.run, &job.first, &job.runs, &job.columns, &given[0], &given[1],
            &given[2], &given[3], &offset, &job.column_apart, &job.component_apart))
        return NULL;
    unsigned long long modulus = PyLong_AsUnsignedLongLong(number); /* an error for 2^64 and more, which a format would cut off */
    if (PyErr_Occurred()) return NULL;
    const Machine *machine = machine_of(level);
    if (!machine) return NULL;
    Buffers all = {.taken = 0};
    for (int i = 0; i < 3; i++)
        if (!take(&all, given[i], 0, 1, "stored bytes")) goto done;
    uint64_t *out = take(&all, given[3], 1, 8, "out");
    if (!out) goto done;

    const Py_ssize_t most = 1 << 24; /* of anything: no product of two of them overflows */
    int sensible = modulus > 2 && modulus >> 62 == 0 && is_run(job.run) && job.first >= 0 && job.first < most && job.runs > 0
                   && job.runs < most / MAX_RUN && job.columns > 0 && job.columns < most && job.runs * job.columns < most;
    if (sensible) {
        job.p = modulus;
        job.bits = 64 - __builtin_clzll(modulus);
        int seeded = length(&all, 2) > 0, packed = length(&all, 0) > 0, second = job.component_apart > 0;
        Py_ssize_t pieces = job.runs * job.columns, size = 8 * packed_words(&job) * (seeded ? 1 : 2);
        sensible = (seeded || packed) && length(&all, 2) == (seeded ? SEED * job.columns : 0) && length(&all, 0) == (packed ? pieces * size : 0)
                   && length(&all, 1) == (packed ? pieces * DIGEST : 0) && (second || !packed);
        Py_ssize_t words = (Py_ssize_t)(length(&all, 3) / 8);
        sensible = sensible && offset >= 0 && offset <= words && job.component_apart >= 0 && job.component_apart <= words
                   && job.column_apart >= 0 && job.column_apart <= words
                   && (u128)(job.columns - 1) * job.column_apart + job.component_apart + offset + job.runs * job.run <= (u128)words;
        job.packed = packed ? all.views[0].buf : NULL;
        job.digests = all.views[1].buf;
        job.seeds = seeded ? all.views[2].buf : NULL;
        job.out = out + (sensible ? offset : 0);
    }
    if (!sensible) {
        PyErr_SetString(PyExc_ValueError, "pieces that do not fit their lengths, or what they are read into");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    bad = machine->read(&job);
    Py_END_ALLOW_THREADS
    result = PyLong_FromSsize_t(bad);
done:
    give_back(&all);
    return result;
}

PyDoc_STRVAR(
    rebase_doc,
    "rebase(moduli, ciphertext, fresh, secret, out)\n\n"
    "ciphertext[0] + (ciphertext[1] - fresh) secret, coefficient by coefficient, prime after prime. The ciphertext is both polynomials,\n"
    "one after the other, at any address; all are residues below their primes. Other threads run meanwhile.");

static PyObject *py_rebase(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *given[5], *result = NULL;
    if (!PyArg_ParseTuple(args, "OOOOO:rebase", &given[0], &given[1], &given[2], &given[3], &given[4])) return NULL;
    Buffers all = {.taken = 0};
    for (int i = 0; i < 5; i++)
        if (!take(&all, given[i], i == 4, i == 1 ? 1 : 8, "residues")) goto done;
    const uint64_t *moduli = all.views[0].buf, *fresh = all.views[2].buf, *secret = all.views[3].buf;
    const Loose *ciphertext = all.views[1].buf;
    uint64_t *out = all.views[4].buf, worst = 0;
    Py_ssize_t primes = length(&all, 0) / 8, size = length(&all, 4);
    int sensible = primes > 0 && size % (8 * primes) == 0 && length(&all, 1) == 2 * size && length(&all, 2) == size && length(&all, 3) == size;
    for (Py_ssize_t i = 0; sensible && i < primes; i++) sensible = moduli[i] > 2 && moduli[i] % 2 && moduli[i] >> 62 == 0; /* a power of two has a longer quotient */
    if (sensible) {
        Py_ssize_t n = (Py_ssize_t)(size / 8 / primes), whole = (Py_ssize_t)(size / 8);
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < primes; i++) {
            uint64_t p = moduli[i];
            const Loose *c0 = ciphertext + i * n, *a = c0 + whole;
            for (Py_ssize_t j = 0; j < n; j++) {
                uint64_t above = c0[j] | a[j] | fresh[i * n + j] | secret[i * n + j];
                worst |= above | (p - 1 - c0[j]) | (p - 1 - a[j]) | (p - 1 - fresh[i * n + j]) | (p - 1 - secret[i * n + j]);
            }
            if (worst >> 63) break;
            rebase(p, n, c0, a, fresh + i * n, secret + i * n, out + i * n);
        }
        Py_END_ALLOW_THREADS
    }
    if (!sensible || worst >> 63) {
        PyErr_SetString(PyExc_ValueError, "a ciphertext of two polynomials, and two more of the same length, are re-based modulo odd primes below 2^62");
        goto done;
    }
    result = Py_NewRef(Py_None);
done:
    give_back(&all);
    return result;
}

static PyMethodDef METHODS[] = {
    {"levels", py_levels, METH_NOARGS, levels_doc},
    {"hash", py_hash, METH_VARARGS, hash_doc},
    {"pack", py_pack, METH_VARARGS, pack_doc},
    {"read", py_read, METH_VARARGS, read_doc},
    {"rebase", py_rebase, METH_VARARGS, rebase_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "encryptedstats._storage", "Between stored bytes and residues.", 0, METHODS, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__storage(void) { return PyModule_Create(&MODULE); }

#else /* -- with vectors of LANES words, once for each width ------------------------------------------------------------------ */

typedef union {
    vec all[STATE];
    uint64_t words[STATE][LANES];
} NAME(State);

#define PERMUTED(from, x, n, to) b[to] = ROTATE(XOR(a[from], d[x]), n)
#define MIXED(y)                                                                                                             \
    a[y] = CHI(b[y], b[y + 1], b[y + 2]), a[y + 1] = CHI(b[y + 1], b[y + 2], b[y + 3]),                                      \
    a[y + 2] = CHI(b[y + 2], b[y + 3], b[y + 4]), a[y + 3] = CHI(b[y + 3], b[y + 4], b[y]), a[y + 4] = CHI(b[y + 4], b[y], b[y + 1])
#define PARITY(x) XOR3(XOR3(a[x], a[x + 5], a[x + 10]), a[x + 15], a[x + 20])

/* Keccak-f[1600] on as many states as there are lanes. */
TARGET static void NAME(permute)(NAME(State) *state)
{
    vec a[STATE], b[STATE], c[5], d[5];
    memcpy(a, state->all, sizeof a);
    for (int round = 0; round < 24; round++) {
        c[0] = PARITY(0), c[1] = PARITY(1), c[2] = PARITY(2), c[3] = PARITY(3), c[4] = PARITY(4);
        d[0] = XOR(c[4], ROTATE(c[1], 1)), d[1] = XOR(c[0], ROTATE(c[2], 1)), d[2] = XOR(c[1], ROTATE(c[3], 1));
        d[3] = XOR(c[2], ROTATE(c[4], 1)), d[4] = XOR(c[3], ROTATE(c[0], 1));
        b[0] = XOR(a[0], d[0]);
        PERMUTED(6, 1, 44, 1), PERMUTED(12, 2, 43, 2), PERMUTED(18, 3, 21, 3), PERMUTED(24, 4, 14, 4);
        PERMUTED(3, 3, 28, 5), PERMUTED(9, 4, 20, 6), PERMUTED(10, 0, 3, 7), PERMUTED(16, 1, 45, 8), PERMUTED(22, 2, 61, 9);
        PERMUTED(1, 1, 1, 10), PERMUTED(7, 2, 6, 11), PERMUTED(13, 3, 25, 12), PERMUTED(19, 4, 8, 13), PERMUTED(20, 0, 18, 14);
        PERMUTED(4, 4, 27, 15), PERMUTED(5, 0, 36, 16), PERMUTED(11, 1, 10, 17), PERMUTED(17, 2, 15, 18), PERMUTED(23, 3, 56, 19);
        PERMUTED(2, 2, 62, 20), PERMUTED(8, 3, 55, 21), PERMUTED(14, 4, 39, 22), PERMUTED(15, 0, 41, 23), PERMUTED(21, 1, 2, 24);
        MIXED(0), MIXED(5), MIXED(10), MIXED(15), MIXED(20);
        a[0] = XOR(a[0], ALL(ROUNDS[round]));
    }
    memcpy(state->all, a, sizeof a);
}

/* The first 16 bytes of SHAKE-256 of LANES messages of the same number of words; the first n of them are wanted. */
TARGET static void NAME(hash_some)(const uint8_t *const *from, int n, Py_ssize_t words, uint8_t out[][DIGEST])
{
    NAME(State) state;
    memset(&state, 0, sizeof state);
    Py_ssize_t at = 0;
    for (; at + RATE <= words; at += RATE) {
        for (int i = 0; i < RATE; i++) state.all[i] = XOR(state.all[i], GATHERED(from, at + i));
        NAME(permute)(&state);
    }
    for (int lane = 0; lane < n; lane++) {
        for (Py_ssize_t i = 0; at + i < words; i++) state.words[i][lane] ^= ((const Loose *)from[lane])[at + i];
        state.words[words - at][lane] ^= SUFFIX;
        state.words[RATE - 1][lane] ^= LAST;
    }
    NAME(permute)(&state);
    for (int lane = 0; lane < n; lane++)
        for (int i = 0; i < DIGEST / 8; i++) memcpy(out[lane] + 8 * i, &state.words[i][lane], 8);
}

TARGET static void NAME(hash)(const uint8_t *data, Py_ssize_t size, Py_ssize_t count, uint8_t *out)
{
    for (Py_ssize_t k = 0; k < count; k += LANES) {
        int n = count - k < LANES ? (int)(count - k) : LANES;
        const uint8_t *from[LANES];
        for (int lane = 0; lane < LANES; lane++) from[lane] = data + (k + (lane < n ? lane : 0)) * size;
        NAME(hash_some)(from, n, size / 8, (uint8_t(*)[DIGEST])(out + k * DIGEST));
    }
}

TARGET static int NAME(pack)(const uint64_t *numbers, int bits, Py_ssize_t width, Py_ssize_t count, Loose *words)
{
    int excess = 0;
    for (Py_ssize_t k = 0; k < count; k++) excess |= pack(numbers + 64 * width * k, bits, width, words + bits * width * k);
    return excess;
}

#if LANES == 1
/* A run in which a number is not below p: those are replaced, first to last, by what follows in the same output, words with the
 * upper bits taken off; of these too, the ones that are not below p are passed over. Words up to `known` are there already, which is
 * enough for primes near a power of two; for others the output is computed again, as far as it takes. */
static void replace_rejected(const Pieces *job, const uint8_t *seed, Py_ssize_t run, const uint64_t *words, Py_ssize_t known, uint64_t *out)
{
    State_baseline state;
    uint64_t mask = ((uint64_t)1 << job->bits) - 1;
    Py_ssize_t at = packed_words(job), from = -RATE; /* in the output: the next word to take, the first of those in the state */
    for (Py_ssize_t i = 0; i < job->run; i++)
        while (out[i] >= job->p) {
            if (at < known) {
                out[i] = words[at++] & mask;
                continue;
            }
            if (from < 0) {
                memset(&state, 0, sizeof state);
                message_of(job, seed, run, state.all);
            }
            for (; at - from >= RATE; from += RATE) permute_baseline(&state);
            out[i] = state.words[at++ - from][0] & mask;
        }
}
#endif

/* The second polynomials of up to LANES pieces from their seeds. */
TARGET static void NAME(expand_some)(const Pieces *job, const uint8_t *const *seeds, const Py_ssize_t *runs, int n, uint64_t *const *out)
{
    NAME(State) state;
    uint64_t block[RATE], words[LANES][MAX_WORDS + SPARE + RATE];
    memset(&state, 0, sizeof state);
    for (int lane = 0; lane < n; lane++) {
        message_of(job, seeds[lane], runs[lane], block);
        for (int i = 0; i < RATE; i++) state.words[i][lane] = block[i];
    }
    Py_ssize_t known = 0;
    for (; known < packed_words(job) + SPARE; known += RATE) {
        NAME(permute)(&state);
        for (int lane = 0; lane < n; lane++)
            for (int i = 0; i < RATE; i++) words[lane][known + i] = state.words[i][lane];
    }
    for (int lane = 0; lane < n; lane++)
        if (unpack(words[lane], job->bits, job->run / 64, job->p, out[lane]))
            replace_rejected(job, seeds[lane], runs[lane], words[lane], known, out[lane]);
}

TARGET static Py_ssize_t NAME(read)(const Pieces *job)
{
    Py_ssize_t words = packed_words(job) * (job->seeds ? 1 : 2), pieces = job->runs * job->columns;
    for (Py_ssize_t k = 0; k < pieces; k += LANES) {
        int n = pieces - k < LANES ? (int)(pieces - k) : LANES;
        const uint8_t *from[LANES], *seeds[LANES];
        uint64_t *first[LANES], *second[LANES];
        Py_ssize_t runs[LANES];
        for (int lane = 0; lane < LANES; lane++) from[lane] = job->packed ? job->packed + 8 * words * (k + (lane < n ? lane : 0)) : NULL;
        for (int lane = 0; lane < n; lane++) {
            Py_ssize_t run = (k + lane) / job->columns, column = (k + lane) % job->columns;
            runs[lane] = job->first + run;
            first[lane] = job->out + column * job->column_apart + run * job->run;
            second[lane] = first[lane] + job->component_apart;
            seeds[lane] = job->seeds ? job->seeds + SEED * column : NULL;
        }
        if (job->packed) {
            uint8_t digests[LANES][DIGEST];
            NAME(hash_some)(from, n, words, digests);
            for (int lane = 0; lane < n; lane++) {
                const Loose *packed = (const Loose *)from[lane];
                if (memcmp(digests[lane], job->digests + DIGEST * (k + lane), DIGEST)) return 2 * (k + lane) + DAMAGED;
                int bad = unpack(packed, job->bits, job->run / 64, job->p, first[lane]);
                if (!job->seeds) bad |= unpack(packed + words / 2, job->bits, job->run / 64, job->p, second[lane]);
                if (bad) return 2 * (k + lane) + NO_RESIDUES;
            }
        }
        if (job->seeds) NAME(expand_some)(job, seeds, runs, n, second);
    }
    return -1;
}

#undef PERMUTED
#undef MIXED
#undef PARITY
#undef LANES
#undef TARGET
#undef NAME
#undef vec
#undef ALL
#undef XOR
#undef XOR3
#undef CHI
#undef ROTATE
#undef GATHERED
#endif
