/* Weighted sums of arrays of 64-bit words: what a worker answers a spot check with.
 *
 * Each word is split into two halves of 32 bits, whose products with small weights are added up in 64 bits without wrapping around.
 * The Python side, encryptedstats/spotcheck/combining.py, bounds the weights and reduces both halves modulo the primes.
 * tests/spotcheck/test_spot_bounds.py compares with exact integers.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_X86 1
#include <immintrin.h>
#endif

#define BLOCK 128 /* words of a sum at a time */
#define TILE 32 /* sums at a time: so many blocks stay in the nearest cache */
#define MAX_SUMS 32768 /* 2^15 products of 2^16 and 2^32 add up below 2^64 */
#define MAX_WEIGHT 65536

/* A sum: where it lies, and how many words it has. */
typedef struct {
    const uint64_t *words;
    Py_ssize_t count;
} Sum;

/* A block of some sums: where it begins in each of them, and its words. */
typedef struct {
    const uint64_t *from[TILE];
    Py_ssize_t numbers[TILE];
    Py_ssize_t count, width;
} Block;

/* Where the halves of a combination go, and its weights. */
typedef struct {
    uint64_t *low, *high;
    const uint64_t *weights;
} Combination;

typedef void (*Add)(const Combination *to, Py_ssize_t count, const Block *block);

static void add_words(const Combination *to, Py_ssize_t count, const Block *block, Py_ssize_t start) {
    for (Py_ssize_t a = 0; a < count; a++)
        for (Py_ssize_t k = 0; k < block->count; k++) {
            const uint64_t weight = to[a].weights[block->numbers[k]], *words = block->from[k];
            for (Py_ssize_t i = start; i < block->width; i++) {
                to[a].low[i] += weight * (words[i] & 0xffffffffu);
                to[a].high[i] += weight * (words[i] >> 32);
            }
        }
}

static void add_any(const Combination *to, Py_ssize_t count, const Block *block) { add_words(to, count, block, 0); }

#ifdef HAVE_X86
/* Both halves of some combinations stay in registers while the sums of a block pass by. */
#define ADD_SOME(NAME, TARGET, VECTOR, LANES, LOAD, STORE, SET, ADD_WORDS, MULTIPLY, SHIFT)                                       \
    __attribute__((always_inline, target(TARGET))) static inline void NAME(                                                       \
        const Combination *to, const Py_ssize_t count, const Block *block) {                                                      \
        for (Py_ssize_t i = 0; i + LANES <= block->width; i += LANES) {                                                           \
            VECTOR low[8], high[8];                                                                                               \
            for (Py_ssize_t a = 0; a < count; a++) low[a] = LOAD((const void *)(to[a].low + i));                                  \
            for (Py_ssize_t a = 0; a < count; a++) high[a] = LOAD((const void *)(to[a].high + i));                                \
            for (Py_ssize_t k = 0; k < block->count; k++) {                                                                       \
                VECTOR x = LOAD((const void *)(block->from[k] + i)), above = SHIFT(x, 32);                                        \
                for (Py_ssize_t a = 0; a < count; a++) {                                                                          \
                    VECTOR weight = SET((long long)to[a].weights[block->numbers[k]]);                                             \
                    low[a] = ADD_WORDS(low[a], MULTIPLY(x, weight));                                                              \
                    high[a] = ADD_WORDS(high[a], MULTIPLY(above, weight));                                                        \
                }                                                                                                                 \
            }                                                                                                                     \
            for (Py_ssize_t a = 0; a < count; a++) STORE((void *)(to[a].low + i), low[a]);                                        \
            for (Py_ssize_t a = 0; a < count; a++) STORE((void *)(to[a].high + i), high[a]);                                      \
        }                                                                                                                         \
        add_words(to, count, block, block->width / LANES * LANES);                                                                \
    }

ADD_SOME(some_avx2, "avx2", __m256i, 4, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_set1_epi64x, _mm256_add_epi64, _mm256_mul_epu32,
         _mm256_srli_epi64)
ADD_SOME(some_avx512, "avx512f", __m512i, 8, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi64, _mm512_add_epi64,
         _mm512_mul_epu32, _mm512_srli_epi64)

__attribute__((target("avx2"))) static void add_avx2(const Combination *to, Py_ssize_t count, const Block *block) {
    for (; count >= 4; count -= 4, to += 4) some_avx2(to, 4, block);
    for (; count >= 1; count -= 1, to += 1) some_avx2(to, 1, block);
}

__attribute__((target("avx512f"))) static void add_avx512(const Combination *to, Py_ssize_t count, const Block *block) {
    for (; count >= 8; count -= 8, to += 8) some_avx512(to, 8, block);
    for (; count >= 4; count -= 4, to += 4) some_avx512(to, 4, block);
    for (; count >= 1; count -= 1, to += 1) some_avx512(to, 1, block);
}
#endif

static Add add_of_machine(void) {
#ifdef HAVE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return add_avx512;
    if (__builtin_cpu_supports("avx2")) return add_avx2;
#endif
    return add_any;
}

/* Add the words from start to stop of all sums, TILE of them at a time; a block that ends earlier in one sum is added for it alone. */
static void add_all(const Sum *sums, Py_ssize_t n, Combination *to, Py_ssize_t count, Py_ssize_t start, Py_ssize_t stop) {
    Add add = add_of_machine();
    for (Py_ssize_t at = start; at < stop; at += BLOCK) {
        Block block = {.count = 0, .width = stop - at < BLOCK ? stop - at : BLOCK};
        for (Py_ssize_t k = 0; k < n; k++) {
            Py_ssize_t left = sums[k].count - at;
            const uint64_t *from = sums[k].words + at;
            if (left > 0 && left < block.width) {
                Block alone = {.from = {from}, .numbers = {k}, .count = 1, .width = left};
                add(to, count, &alone);
            } else if (left > 0) {
                block.from[block.count] = from;
                block.numbers[block.count++] = k;
            }
            if (block.count == TILE || k == n - 1) {
                add(to, count, &block);
                block.count = 0;
            }
        }
        for (Py_ssize_t a = 0; a < count; a++) to[a].low += block.width, to[a].high += block.width;
    }
}

typedef struct {
    Py_buffer weights, low, high, words, places;
    Py_buffer *buffers;
    Sum *sums;
    Py_ssize_t n_sums, taken;
} Given;

static void release(Given *given) {
    for (Py_ssize_t k = 0; k < given->taken; k++) PyBuffer_Release(&given->buffers[k]);
    PyMem_Free(given->buffers);
    PyMem_Free(given->sums);
    Py_buffer *others[] = {&given->weights, &given->low, &given->high, &given->words, &given->places};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        if (others[k]->obj) PyBuffer_Release(others[k]);
}

static int take(PyObject *object, Py_buffer *to, int flags) {
    if (PyObject_GetBuffer(object, to, PyBUF_C_CONTIGUOUS | flags) < 0) return -1;
    if (to->itemsize == 8 && (uintptr_t)to->buf % 8 == 0) return 0;
    PyErr_SetString(PyExc_ValueError, "arrays of aligned 64-bit words are needed");
    return -1;
}

static int are_small(const uint64_t *weights, Py_ssize_t count) {
    uint64_t all = 0;
    for (Py_ssize_t i = 0; i < count; i++) all |= weights[i] > MAX_WEIGHT;
    return !all;
}

static int take_combinations(Given *given, PyObject *weights, PyObject *low, PyObject *high) {
    if (take(weights, &given->weights, 0) < 0 || take(low, &given->low, PyBUF_WRITABLE) < 0) return -1;
    return take(high, &given->high, PyBUF_WRITABLE);
}

static int refuse(void) {
    PyErr_SetString(PyExc_ValueError, "these arrays do not fit together, or a weight is too large");
    return -1;
}

/* Add to the words from start to stop of the halves of each combination. */
static int add_given(const Given *given, Py_ssize_t start, Py_ssize_t stop) {
    Py_ssize_t n = given->n_sums, n_weights = given->weights.len / 8, words = 0, count = n > 0 ? n_weights / n : 0;
    int good = n > 0 && n <= MAX_SUMS && count > 0 && n_weights == count * n && given->low.len == given->high.len;
    good = good && given->low.len % (8 * (count ? count : 1)) == 0;
    if (good) words = given->low.len / 8 / count;
    good = good && 0 <= start && start <= stop && stop <= words && are_small(given->weights.buf, n_weights);
    for (Py_ssize_t k = 0; good && k < n; k++) good = given->sums[k].count <= words;
    if (!good) return refuse();
    Combination *to = PyMem_Malloc((size_t)count * sizeof(Combination));
    if (to == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    uint64_t *low = given->low.buf, *high = given->high.buf, *weights = given->weights.buf;
    for (Py_ssize_t a = 0; a < count; a++) to[a] = (Combination){low + a * words + start, high + a * words + start, weights + a * n};
    Py_BEGIN_ALLOW_THREADS;
    add_all(given->sums, n, to, count, start, stop);
    Py_END_ALLOW_THREADS;
    PyMem_Free(to);
    return 0;
}

static PyObject *finish(Given *given, int status) {
    release(given);
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

/* weigh(weights, sums, start, stop, low, high): of sums that are arrays of their own. */
static PyObject *weigh(PyObject *self, PyObject *args) {
    PyObject *weights, *sums, *low, *high;
    Py_ssize_t start, stop;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!nnOO", &weights, &PyTuple_Type, &sums, &start, &stop, &low, &high)) return NULL;
    Given given = {.n_sums = PyTuple_GET_SIZE(sums)};
    given.buffers = PyMem_Calloc((size_t)given.n_sums + 1, sizeof(Py_buffer));
    given.sums = PyMem_Calloc((size_t)given.n_sums + 1, sizeof(Sum));
    if (given.buffers == NULL || given.sums == NULL) {
        PyErr_NoMemory();
        return finish(&given, -1);
    }
    if (take_combinations(&given, weights, low, high) < 0) return finish(&given, -1);
    for (; given.taken < given.n_sums; given.taken++) {
        Py_buffer *to = &given.buffers[given.taken];
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(sums, given.taken), to, PyBUF_C_CONTIGUOUS) < 0) return finish(&given, -1);
        given.sums[given.taken] = (Sum){to->buf, to->len / 8};
        if (to->itemsize != 8 || (uintptr_t)to->buf % 8) {
            given.taken++;
            return finish(&given, refuse());
        }
    }
    return finish(&given, add_given(&given, start, stop));
}

/* weigh_rows(weights, words, places, start, stop, low, high): of sums that lie in one array, each with its first word and its number of words. */
static PyObject *weigh_rows(PyObject *self, PyObject *args) {
    PyObject *weights, *words, *places, *low, *high;
    Py_ssize_t start, stop;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOnnOO", &weights, &words, &places, &start, &stop, &low, &high)) return NULL;
    Given given = {0};
    if (take_combinations(&given, weights, low, high) < 0) return finish(&given, -1);
    if (take(words, &given.words, 0) < 0 || take(places, &given.places, 0) < 0) return finish(&given, -1);
    const int64_t *place = given.places.buf;
    Py_ssize_t length = given.words.len / 8;
    given.n_sums = given.places.len / 16;
    given.sums = PyMem_Calloc((size_t)given.n_sums + 1, sizeof(Sum));
    if (given.sums == NULL) {
        PyErr_NoMemory();
        return finish(&given, -1);
    }
    for (Py_ssize_t k = 0; k < given.n_sums; k++, place += 2) {
        if (place[0] < 0 || place[1] < 0 || place[0] > length || place[1] > length - place[0]) return finish(&given, refuse());
        given.sums[k] = (Sum){(const uint64_t *)given.words.buf + place[0], (Py_ssize_t)place[1]};
    }
    return finish(&given, add_given(&given, start, stop));
}

static PyMethodDef methods[] = {
    {"weigh", weigh, METH_VARARGS, "weigh(weights, sums, start, stop, low, high): weighted sums, in two halves."},
    {"weigh_rows", weigh_rows, METH_VARARGS, "weigh_rows(weights, words, places, start, stop, low, high): of sums in one array."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_weigh", "Weighted sums of arrays of words.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__weigh(void) { return PyModule_Create(&module); }
