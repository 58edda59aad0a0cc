/* Every number format of kernels/formats.h on the GPU, bit for bit against the CPU: all codes, a
 * stride of all floats and those where rules change, blocks of every kind of content. One kernel
 * per format and direction, made from the table. */
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#include "kernels/format.h"
#include "tests/check.h"
#include "tests/gpu/emulator.h"

namespace
{

enum { THREADS = 128 };

#define INDEX const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x
/* y [n] = function(x [n]) */
#define MAP_KERNEL(function, out, in)                                                              \
    __global__ void function##_kernel(out *y, const in *x, size_t n)                               \
    {                                                                                              \
        INDEX;                                                                                     \
        if (i < n) y[i] = kv_##function(x[i]);                                                     \
    }

#define KERNELS_EXACT(name)   MAP_KERNEL(name##_round, float, float)
#define KERNELS_INTEGER(name) /* one kernel serves all widths */
#define KERNELS_FLOAT(name)                                                                        \
    MAP_KERNEL(name##_encode, uint32_t, float)                                                     \
    MAP_KERNEL(name##_decode, float, uint32_t)                                                     \
    MAP_KERNEL(name##_round, float, float)
#define KERNELS_BLOCK(name)                                                                        \
    __global__ void name##_encode_kernel(kv_##name##_block *y, const float *x, size_t n)           \
    {                                                                                              \
        INDEX;                                                                                     \
        if (i < n) kv_##name##_encode_block(y + i, x + 32 * i);                                    \
    }                                                                                              \
    __global__ void name##_decode_kernel(float *y, const kv_##name##_block *x, size_t n)           \
    {                                                                                              \
        INDEX;                                                                                     \
        if (i < n) kv_##name##_decode_block(y + 32 * i, x + i);                                    \
    }                                                                                              \
    __global__ void name##_codes_kernel(uint32_t *y, const kv_##name##_block *x, size_t n)         \
    {                                                                                              \
        INDEX;                                                                                     \
        if (i < n) kv_##name##_block_codes(y + 32 * i, x + i);                                     \
    }
#define ROW(name, NAME, KIND, ...) KERNELS_##KIND(name)
KV_FORMAT_TABLE(ROW)
#undef ROW
MAP_KERNEL(e8m0_encode, uint32_t, float)
MAP_KERNEL(e8m0_decode, float, uint32_t)

/* What an integer grid makes of x: code and value of both grids, [n][4]. */
KV_HD void integer_grid(float *y, float x, float range, float minimum, int bits)
{
    const float qmax = kv_int_qmax(bits), levels = kv_int_levels(bits);
    const float s = kv_int_scale(range, qmax), t = kv_int_scale(range, levels);
    const float level = kv_int_level(x, kv_int_inverse(s), qmax);
    const uint32_t code = kv_int_code(level, bits);
    y[0] = (float)code;
    y[1] = kv_int_value(kv_int_code_level(code, bits), s);
    y[2] = kv_int_level_from(x, minimum, kv_int_inverse(t), levels);
    y[3] = kv_int_round_from(x, minimum, kv_int_inverse(t), t, levels);
}

__global__ void integer_kernel(float *y, const float *x, float range, float minimum, int bits,
                               size_t n)
{
    INDEX;
    if (i < n) integer_grid(y + 4 * i, x[i], range, minimum, bits);
}

template <class T> struct device {
    T *p = nullptr;
    size_t n;
    explicit device(size_t count) : n(count) { upload(std::vector<T>(n)); }
    explicit device(const std::vector<T> &host) : n(host.size()) { upload(host); }
    ~device() { cudaFree(p); }
    void upload(const std::vector<T> &host)
    {
        CHECK(cudaMalloc((void **)&p, n * sizeof(T)) == cudaSuccess, "%zu", n);
        CHECK(cudaMemcpy(p, host.data(), n * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess,
              "%zu", n);
    }
    std::vector<T> host() const
    {
        std::vector<T> h(n);
        CHECK(cudaGetLastError() == cudaSuccess, "%s", gpu_message());
        CHECK(cudaMemcpy(h.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess, "%s",
              gpu_message());
        return h;
    }
};

unsigned blocks(size_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

bool is_equal(uint32_t a, uint32_t b)
{
    return a == b;
}
bool is_equal(uint8_t a, uint8_t b)
{
    return a == b;
}
bool is_equal(float a, float b) /* bits, but for those of a NaN, which C leaves open */
{
    return kv_float_bits(a) == kv_float_bits(b) || (a != a && b != b);
}

size_t compared;

template <class T>
void compare(const char *what, const std::vector<T> &gpu, const std::vector<T> &cpu)
{
    size_t n_bad = 0, first = 0;
    for (size_t i = 0; i < cpu.size(); i++)
        if (!is_equal(gpu[i], cpu[i]) && n_bad++ == 0) first = i;
    CHECK(n_bad == 0, "%s: %zu of %zu differ, first at %zu: %.9g, CPU %.9g", what, n_bad,
          cpu.size(), first, (double)gpu[first], (double)cpu[first]);
    compared += cpu.size();
}

template <class Out, class In>
void check_map(const char *what, void (*kernel)(Out *, const In *, size_t), Out (*function)(In),
               const std::vector<In> &x)
{
    device<In> in(x);
    device<Out> out(x.size());
    kernel<<<blocks(x.size()), THREADS>>>(out.p, in.p, x.size());
    std::vector<Out> cpu;
    for (const In &v : x) cpu.push_back(function(v));
    compare(what, out.host(), cpu);
}

uint64_t state = 1;
uint32_t random32()
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

/* All kinds of floats: a stride of all bit patterns, and neighbours of powers of two and of ties.
 */
std::vector<float> floats()
{
    std::vector<float> x;
    for (uint64_t b = 0; b < (uint64_t)1 << 32; b += 1000003)
        x.push_back(kv_bits_float((uint32_t)b));
    for (uint32_t e = 0; e < 256; e++)
        for (uint32_t m = 0; m < 16; m++)
            for (int by = -1; by <= 1; by++) {
                const uint32_t b = (e << 23 | m << 19) + (uint32_t)by;
                x.push_back(kv_bits_float(b));
                x.push_back(kv_bits_float(b ^ 0x80000000u));
            }
    return x;
}

std::vector<uint32_t> codes(int bits)
{
    std::vector<uint32_t> c;
    for (uint32_t k = 0; k < 1u << bits; k++) c.push_back(k);
    return c;
}

/* n blocks of 32 finite floats: random sizes, constant, zero, one outlier, subnormal, huge. */
std::vector<float> contents(size_t n)
{
    std::vector<float> x;
    for (size_t b = 0; b < n; b++) {
        const uint32_t exponent = b % 7 == 6 ? random32() % 255 : 100 + random32() % 40;
        for (int i = 0; i < 32; i++) {
            const float v = kv_bits_float((random32() & 0x807fffffu) | exponent << 23);
            const float kinds[] = {v,
                                   v,
                                   b % 2 ? 0.0f : -0.0f,
                                   1.5f,
                                   i == 17 ? 1e4f : v * 1e-3f,
                                   (float)(i - 16) * 0.5f,
                                   v};
            x.push_back(kinds[b % 7]);
        }
    }
    return x;
}

template <class B>
void check_block(const char *name, void (*encode_kernel)(B *, const float *, size_t),
                 void (*decode_kernel)(float *, const B *, size_t),
                 void (*codes_kernel)(uint32_t *, const B *, size_t),
                 void (*encode)(B *, const float *), void (*decode)(float *, const B *),
                 void (*block_codes)(uint32_t *, const B *))
{
    const size_t n = 300;
    const std::vector<float> x = contents(n);
    std::vector<B> cpu(n);
    memset((void *)cpu.data(), 0, n * sizeof(B));
    for (size_t b = 0; b < n; b++) encode(&cpu[b], &x[32 * b]);
    device<float> in(x), values(32 * n);
    device<B> encoded(n);
    device<uint32_t> all_codes(32 * n);
    encode_kernel<<<blocks(n), THREADS>>>(encoded.p, in.p, n);
    const std::vector<B> found = encoded.host();
    const uint8_t *const f = (const uint8_t *)found.data(), *const c = (const uint8_t *)cpu.data();
    compare(name, std::vector<uint8_t>(f, f + n * sizeof(B)),
            std::vector<uint8_t>(c, c + n * sizeof(B)));
    /* Decoded: the encoded blocks, then blocks of random bytes. */
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            for (size_t k = 0; k < n * sizeof(B); k++)
                ((uint8_t *)cpu.data())[k] = (uint8_t)random32();
        device<B> blocks_in(cpu);
        decode_kernel<<<blocks(n), THREADS>>>(values.p, blocks_in.p, n);
        codes_kernel<<<blocks(n), THREADS>>>(all_codes.p, blocks_in.p, n);
        std::vector<float> y(32 * n);
        std::vector<uint32_t> k(32 * n);
        for (size_t b = 0; b < n; b++)
            decode(&y[32 * b], &cpu[b]), block_codes(&k[32 * b], &cpu[b]);
        compare(name, values.host(), y);
        compare(name, all_codes.host(), k);
    }
}

void check_integers(const std::vector<float> &x)
{
    const float ranges[] = {0.0f, 1.0f, 3.7f, 1e-39f, 1e30f};
    for (int bits = 2; bits <= 8; bits++)
        for (float range : ranges) {
            std::vector<float> finite, cpu;
            for (size_t i = (size_t)bits; i < x.size(); i += 7)
                if (fabsf(x[i]) <= 1e30f) finite.push_back(x[i]);
            for (int i = -300; i < 300; i++) finite.push_back((float)i * range / 254.0f); /* ties */
            cpu.resize(4 * finite.size());
            const float minimum = -0.3f * range;
            for (size_t i = 0; i < finite.size(); i++)
                integer_grid(&cpu[4 * i], finite[i], range, minimum, bits);
            device<float> in(finite), out(4 * finite.size());
            integer_kernel<<<blocks(finite.size()), THREADS>>>(out.p, in.p, range, minimum, bits,
                                                               finite.size());
            compare("int", out.host(), cpu);
        }
}

#define CHECK_EXACT(name, bits)   check_map(#name " round", name##_round_kernel, kv_##name##_round, x)
#define CHECK_INTEGER(name, bits) (void)0
#define CHECK_FLOAT(name, bits)                                                                    \
    check_map(#name " encode", name##_encode_kernel, kv_##name##_encode, x);                       \
    check_map(#name " decode", name##_decode_kernel, kv_##name##_decode, codes(bits));             \
    check_map(#name " round", name##_round_kernel, kv_##name##_round, x)
#define CHECK_BLOCK(name, bits)                                                                    \
    check_block(#name, name##_encode_kernel, name##_decode_kernel, name##_codes_kernel,            \
                kv_##name##_encode_block, kv_##name##_decode_block, kv_##name##_block_codes)

} // namespace

int main()
{
    const std::vector<float> x = floats();
#define ROW(name, NAME, KIND, bits, ...) CHECK_##KIND(name, bits);
    KV_FORMAT_TABLE(ROW)
#undef ROW
    check_map("e8m0 encode", e8m0_encode_kernel, kv_e8m0_encode, x);
    check_map("e8m0 decode", e8m0_decode_kernel, kv_e8m0_decode, codes(8));
    check_integers(x);
    CHECK(gpu_live().allocations == 0, "%zu", gpu_live().allocations);
    printf("%zu results equal on GPU and CPU\n", compared);
    return check_done();
}
