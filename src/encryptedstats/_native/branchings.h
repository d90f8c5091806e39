/* Sums over chunks of a binary tree of products, at one point: fused.c includes this file once for each kind of vector of doubles.
 *
 * From a root r and a factor f come the inside r f and the outside r - r f; each of them is split by a factor of its own, and the
 * four parts are multiplied by one more factor. Everything that is added up over the chunks stays in registers: what is split is
 * reduced once per product; the four last products are added up in two halves, which are reduced once for chunks_at_once chunks.
 *
 * Bounds for p < 2^48 and factors below 0.51 p: a product is reduced to less than 0.56 p, an outside is below 1.7 p, and a last
 * product below 2^(2 bits). Next to `grid` = 1.5 2^(bits + 52) doubles are 2^bits apart while sums stay below 2^(bits + 51), as those of
 * chunks_at_once products do, and what is left of a product is at most 2^(bits - 1): both halves are exact. For p < 2^50 it is 0.75 p, 2 p
 * and 2^(2 bits + 1).
 */
TARGET INLINE vec NAME(reduce)(vec x, vec p, vec inverse, vec magic)
{
    return FNMADD(SUB(FMADD(x, inverse, magic), magic), p, x);
}

TARGET INLINE vec NAME(times)(vec a, vec b, vec p, vec inverse, vec magic)
{
    vec h = MUL(a, b), l = FMSUB(a, b, h);
    return ADD(FNMADD(SUB(FMADD(h, inverse, magic), magic), p, h), l);
}

#define AT(k) LOAD(at[k] + to)
#define REDUCE(x) x = NAME(reduce)(x, p, inverse, magic)
#define SPLIT(inside, outside, whole, k, sum)                                                                               \
    vec inside = NAME(times)(whole, AT(k), p, inverse, magic), outside = SUB(whole, inside);                          \
    sum = ADD(sum, inside);
#define LEAF(part, k)                                                                                                       \
    do {                                                                                                                    \
        vec f = AT(4 + k), next = FMADD(part, f, upper[k]);                                                           \
        lower[k] = ADD(lower[k], FMSUB(part, f, SUB(next, upper[k])));                                                      \
        upper[k] = next;                                                                                                    \
    } while (0)

TARGET static void NAME(branching)(const Field *f, const Branch *b, Py_ssize_t n_chunks)
{
    const vec p = ALL(f->pd), inverse = ALL(f->inverse), magic = ALL(0x1.8p52);
    const vec grid = ALL(ldexp(1.5, f->bits + 52)), zero = ALL(0.0);
    const Py_ssize_t at_once = chunks_at_once(f->bits);
    for (Py_ssize_t i = 0; i < f->n; i += LANES) {
        const double *at[8];
        vec root = zero, first = zero, second[2] = {zero, zero}, upper[4] = {grid, grid, grid, grid}, lower[4] = {zero, zero, zero, zero};
        for (int k = 0; k < 8; k++) at[k] = (const double *)b->from[k] + i;
        for (Py_ssize_t chunk = 0, to = 0; chunk < n_chunks;) {
            Py_ssize_t end = chunk + at_once < n_chunks ? chunk + at_once : n_chunks;
            for (; chunk < end; chunk++, to += b->apart) {
                vec whole = AT(0);
                root = ADD(root, whole);
                SPLIT(in, out, whole, 1, first)
                SPLIT(in_in, in_out, in, 2, second[0])
                LEAF(in_in, 0);
                LEAF(in_out, 1);
                SPLIT(out_in, out_out, out, 3, second[1])
                LEAF(out_in, 2);
                LEAF(out_out, 3);
            }
            REDUCE(root);
            REDUCE(first);
            REDUCE(second[0]);
            REDUCE(second[1]);
            for (int k = 0; k < 4; k++) {
                lower[k] = ADD(NAME(reduce)(SUB(upper[k], grid), p, inverse, magic), lower[k]), upper[k] = grid;
                REDUCE(lower[k]);
            }
        }
        if (b->to[0]) STORE((double *)b->to[0] + i, root);
        if (b->to[1]) STORE((double *)b->to[1] + i, first);
        for (int k = 0; k < 2; k++)
            if (b->to[2 + k]) STORE((double *)b->to[2 + k] + i, second[k]);
        for (int k = 0; k < 4; k++)
            if (b->to[4 + k]) STORE((double *)b->to[4 + k] + i, lower[k]);
    }
}

#undef AT
#undef REDUCE
#undef SPLIT
#undef LEAF
#undef NAME
#undef TARGET
#undef LANES
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
