/* Registered kernels and variables, by name; and launches without the CUDA runtime. A name in two
 * files is an error: nobody could tell which one a launch means. */
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/gpu/internal.h"

namespace gpu
{

namespace
{

struct registry {
    std::map<std::string, kernel> kernels;
    std::map<std::string, variable> variables;
    int arch = 0;
};

registry &all() /* static constructors of other files come first */
{
    static registry r;
    return r;
}

} // namespace

module::module(int arch, const kernel *kernels, size_t n_kernels, const variable *variables,
               size_t n_variables)
{
    if (!all().arch) all().arch = arch;
    for (size_t i = 0; i < n_kernels; i++)
        if (!all().kernels.emplace(kernels[i].name, kernels[i]).second) {
            fprintf(stderr, "GPU emulator: two kernels named %s\n", kernels[i].name);
            abort();
        }
    for (size_t i = 0; i < n_variables; i++) {
        const variable &v = variables[i];
        all().variables.emplace(v.name, v);
        add_range(v.memory, v.bytes, v.is_constant ? OWNER_CONSTANT : OWNER_MODULE);
    }
}

const kernel *find_kernel(const char *name)
{
    const auto k = all().kernels.find(name);
    return k == all().kernels.end() ? nullptr : &k->second;
}

const variable *find_variable(const char *name)
{
    const auto v = all().variables.find(name);
    return v == all().variables.end() ? nullptr : &v->second;
}

int module_arch()
{
    return all().arch;
}

} // namespace gpu

extern "C" int gpu_run(const char *name, unsigned blocks, unsigned threads, unsigned shared_bytes,
                       void **arguments)
{
    const gpu::kernel *const k = gpu::find_kernel(name);
    if (!k) {
        fprintf(stderr, "GPU emulator: no kernel named %s\n", name);
        return 1;
    }
    return !gpu::launch(*k, {blocks, 1, 1}, {threads, 1, 1}, shared_bytes, (uint8_t **)arguments);
}
