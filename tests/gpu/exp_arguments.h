/* Arguments of kv_expf (real.h) at which one wrong last bit of a constant or one rounding of
 * another kind changes the result, found by trying all floats; and those about its end. Only the
 * last bit of 1/5040 decides nowhere. */
#ifndef KVANT_TESTS_GPU_EXP_ARGUMENTS_H
#define KVANT_TESTS_GPU_EXP_ARGUMENTS_H

enum { EXP_ARGUMENTS = 14 };
static const float exp_arguments[EXP_ARGUMENTS] = {
    -0x1.842994p+3f, -0x1.8f4a2p+3f,  -0x1.480198p-2f, -0x1.688a76p-2f, -0x1.8aac54p+1f,
    -0x1.5b9fd6p-2f, -0x1.6ce7e6p-2f, -0x1.472a5ep+4f, -0x1.fe2964p+3f, -87.0f,
    -0x1.5c0002p+6f, -0x1.5bfffep+6f, -100.0f,         -0x1.0p-30f,
};

#endif
