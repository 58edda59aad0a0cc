"""Tests of translate.py, ptx.py and lint.py: what must be refused is refused, by name and line; and of
what mutate.py changes."""

import sys
import unittest

import lint
import mutate
import ptx
import translate

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"


def kernel(body, head=""):
    """The body's first line is line 7."""
    return f"""{HEAD}{head}.visible .entry k(.param .u64 p, .param .align 8 .b8 s[24])
{{
  .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .f32 %f<4>; .reg .f64 %g<4>;
{body}
  ret;
}}
"""


def translated(body, head=""):
    return translate.Translator(ptx.parse(kernel(body, head))).translate()


REFUSED = [  # (body, message)
    ("  add.rn.ftz.f32 %f1, %f2, %f3;", "line 7: instruction not known: add.rn.ftz.f32"),
    ("\n  add.f32 %f1, %f2, %f3;", "line 8: instruction not known: add.f32"),
    ("  add.rn.sat.f32 %f1, %f2, %f3;", "line 7: instruction not known: add.rn.sat.f32"),
    ("  rsqrt.approx.f32 %f1, %f2;", "line 7: instruction not known: rsqrt.approx.f32"),
    ("  @%p1 ex2.approx.ftz.f32 %f1, %f2;", "line 7: instruction not known: ex2.approx.ftz.f32"),
    ("  activemask.b32 %r1;", "line 7: instruction not known: activemask.b32"),
    ("  ld.volatile.global.u32 %r1, [%d1];", "line 7: instruction not known: ld.volatile.global.u32"),
    ("  ld.global.v8.f32 {%f1}, [%d1];", "line 7: instruction not known: ld.global.v8.f32"),
    ("  atom.global.add.f32 %f1, [%d1], %f2;", "line 7: instruction not known: atom.global.add.f32"),
    ("  bar.sync 1;", "line 7: bar.sync: only barrier 0 of all threads"),
    ("  bar.sync 0, 64;", "line 7: bar.sync: only barrier 0 of all threads"),
    ("  call.uni (r), vprintf, (a);", "line 7: call of vprintf, which is not in this file"),
    ("  mov.u32 %r1, %clock;", "line 7: operand not known: %clock"),
    ("  mov.u32 %r1, elsewhere;", "line 7: operand not known: elsewhere"),
    ("  add.s32 %r1, %r2;", "line 7: add.s32: 2 operands"),
    ("  add.s32 %r1, %r2, %d1;", "line 7: register %d1 has 64 bits, .s32 has 32"),
    ("  add.s64 %r1, %d2, %d1;", "line 7: register %r1 cannot take .s64"),
    ("  add.s32 %p1, %r2, %r1;", "line 7: register %p1 cannot take .s32"),
    ("  add.rn.f32 %f1, %f2, 0d3FF0000000000000;", "line 7: literal 0d3FF0000000000000 for .f32"),
    ("  ld.param.u64 %d1, [s+20];", "line 7: outside of the parameter: [s+20]"),
    ("  ld.param.u64 %d1, [%d2];", "line 7: parameter address not understood: [%d2]"),
    ("  mov.b64 %d1, s; ld.param.u64 %d2, [%d1+20];", "line 7: outside of the parameter: [%d1+20]"),
    ("  mov.b64 %d1, s; add.s64 %d2, %d1, 8; ld.param.u32 %r1, [%d2+-12];",
     "line 7: outside of the parameter: [%d2+-12]"),
    ("  mov.b64 %d1, s; add.s64 %d2, %d1, %d1;", "line 7: %d1 is the address of a parameter"),
    ("  mov.b64 %d1, s; mov.b64 %d1, p; ld.param.u64 %d2, [%d1];", "line 7: operand not known: s"),
    ("  ld.global.v2.u32 {%r1, %r2, %r3}, [%d1];", "line 7: ld.global.v2.u32: operand"),
    ("  .reg .b128 %q;", "line 7: register type not known: .b128"),
    ("  .strange 4;", "line 7: directive not known: .strange"),
    ("  add.s32 %r1, %r2, %r3", "line 7: operand not known: %r3 ret"),
    ("  ADD.s32 %r1;", "line 7: statement not understood"),
]


class Translate(unittest.TestCase):
    def test_refuses_with_name_and_line(self):
        for body, message in REFUSED:
            with self.subTest(body), self.assertRaises(ptx.PtxError) as caught:
                translated(body)
            self.assertIn(message, str(caught.exception))

    def test_refuses_files(self):
        for text, message in [
                (".address_size 32\n", "line 1: only 64-bit addresses"),
                (HEAD + ".global .texref t;", "line 4: declaration not understood"),
                (HEAD + ".global .u64 a = generic(b);", "line 4: initial value not known: generic(b)"),
                (HEAD + ".extern .global .u32 a[];", "line 4: external variable a"),
                (HEAD + ".entry k() .strange 3 {}", "line 4: directive not known: .strange"),
                (HEAD + ".entry k() {", "line 4: a function without an end"),
                (HEAD + ".global .u32 a", "line 4: the text ends inside a declaration")]:
            with self.subTest(text), self.assertRaises(ptx.PtxError) as caught:
                translate.Translator(ptx.parse(text)).translate()
            self.assertIn(message, str(caught.exception))

    def test_accepts(self):
        text = translated("  .loc 1 2 3;\n  .pragma \"nounroll\";\n  // note\n  add.s32 %r1, %r2, -1; /* */")
        self.assertIn("add(a, b)", text)

    def test_line_information(self):
        text = translated("  .loc 1 2 3\n  add.s32 %r1, %r2, -1;\n  .loc 1 9 1, function_name a, "
                          "inlined_at 1 2 3\n  sub.s32 %r1, %r1, %r2;", ".section .debug_str {\n.b8 1\n}\n")
        self.assertIn("add(a, b)", text)
        self.assertIn("sub(a, b)", text)

    def test_lines_survive_comments(self):
        with self.assertRaises(ptx.PtxError) as caught:
            translated("  /* two\n  lines */ // more\n  strange %r1;")
        self.assertIn("line 9: instruction not known: strange", str(caught.exception))

    def test_static_shared_memory_is_placed_in_order(self):
        text = translated("  .shared .align 4 .b8 a[6];\n  .shared .align 8 .b8 b[8];\n"
                          "  mov.u32 %r1, b; mov.u32 %r2, many;",
                          ".extern .shared .align 16 .b8 many[]; ")
        self.assertIn("(shared_start + 8u + 0u)", text)
        self.assertIn("self->dynamic_offset", text)
        self.assertIn('"k", k_k, 2, s_k, 16}', text)


LINT = [  # (body, finding)
    ("  add.rn.f32 %f1, %f2, %f3;", None),
    ("  fma.rn.f64 %g1, %g2, %g3, %g1;", None),
    ("  add.s32 %r1, %r2, %r3;", None),
    ("  min.f32 %f1, %f2, %f3;", None),
    ("  ld.global.f32 %f1, [%d1];", None),
    ("  cvt.rzi.s32.f32 %r1, %f1;", None),
    ("  add.f32 %f1, %f2, %f3;", "add.f32: names no rounding, so that it may be fused"),
    ("  mul.f64 %g1, %g2, %g3;", "mul.f64: names no rounding, so that it may be fused"),
    ("  div.rz.f32 %f1, %f2, %f3;", "div.rz.f32: rounds .rz"),
    ("  @%p1 sub.rp.f32 %f1, %f2, %f3;", "sub.rp.f32: rounds .rp"),
    ("  div.approx.f32 %f1, %f2, %f3;", "div.approx.f32: approximate"),
    ("  { sqrt.approx.ftz.f32 %f1, %f2; }", "sqrt.approx.ftz.f32: approximate"),
    ("  max.ftz.f32 %f1, %f2, %f3;", "max.ftz.f32: flushes subnormals"),
    ("  mad.rn.f32 %f1, %f2, %f3, %f1;", "mad.rn.f32: mad of floats leaves its rounding open"),
    ("  red.global.add.f32 [%d1], %f1;", "the order of an atomic float operation is open"),
    ("  .local .align 4 .b8 depot[16];\n  ld.local.u32 %r1, [%d1];", "uses local memory"),
]


class Lint(unittest.TestCase):
    def test_findings(self):
        for body, finding in LINT:
            with self.subTest(body):
                found = lint.lint(ptx.parse(kernel(body)), [])
                self.assertEqual(len(found), finding is not None, found)
                if finding:
                    self.assertEqual((found[0][0], found[0][1]), (7, "k"))
                    self.assertIn(finding, found[0][2])

    def test_local_memory_may_be_expected(self):
        module = ptx.parse(kernel(LINT[-1][0]))
        self.assertEqual(lint.lint(module, ["k"]), [])
        self.assertEqual(len(lint.lint(module, ["other"])), 1)


MUTANTS = [  # (body, mutants)
    ("  add.rn.f32 %f1, %f2, %f3;", ["sub.rn.f32 %f1, %f2, %f3", "add.rz.f32 %f1, %f2, %f3",
                                     "mov.f32 %f1, %f2", "mov.f32 %f1, %f3"]),
    ("  fma.rn.f32 %f1, %f2, %f3, %f1;", ["fma.rz.f32 %f1, %f2, %f3, %f1",
                                          "mul.rn.f32 %f1, %f2, %f3", "mov.f32 %f1, %f1"]),
    ("  setp.lt.f32 %p1, %f1, %f2;", ["setp.le.f32 %p1, %f1, %f2", "setp.gt.f32 %p1, %f1, %f2",
                                      "setp.ltu.f32 %p1, %f1, %f2"]),
    ("  shl.b32 %r1, %r2, %r3;", ["shr.u32 %r1, %r2, %r3", "mov.b32 %r1, %r2"]),
    ("  bra.uni L;\nL:", ["left out"]),
    ("  @!%p1 bra L;\nL:", ["bra L", "left out"]),
    ("  @%p1 abs.f32 %f1, %f2;", ["@!%p1 abs.f32 %f1, %f2", "@%p1 mov.f32 %f1, %f2"]),
    ("  setp.eq.s32 %p1, %r1, 2;", ["setp.ne.s32 %p1, %r1, 2", "setp.eq.s32 %p1, %r1, 3",
                                    "setp.eq.s32 %p1, %r1, 1"]),
    ("  selp.f32 %f1, %f2, 0f00000000, %p1;", ["selp.f32 %f1, 0f00000000, %f2, %p1",
                                               "selp.f32 %f1, %f2, 0f3F800000, %p1",
                                               "mov.f32 %f1, %f2"]),
    ("  mad.lo.s32 %r1, %r2, %r3, %r1;", ["mad.hi.s32 %r1, %r2, %r3, %r1", "mul.lo.s32 %r1, %r2, %r3",
                                          "add.s32 %r1, %r2, %r1", "mov.s32 %r1, %r1"]),
    ("  st.shared.f64 [%d1+8], %g1;", ["left out", "st.shared.f64 [%d1+16], %g1",
                                       "st.shared.f64 [%d1+0], %g1"]),
    ("  ld.shared.v2.u32 {%r1, %r2}, [%d1];", ["ld.shared.v2.u32 {%r2, %r1}, [%d1]",
                                               "ld.shared.v2.u32 {%r1, %r2}, [%d1+4]",
                                               "ld.shared.v2.u32 {%r1, %r2}, [%d1+-4]"]),
    ("  ld.param.u64 %d1, [s+8];", ["ld.param.u64 %d1, [s+16]", "ld.param.u64 %d1, [s+0]"]),
    ("  red.shared.add.u32 [%d1], %r1;", ["left out", "red.shared.max.u32 [%d1], %r1",
                                          "red.shared.add.u32 [%d1+4], %r1",
                                          "red.shared.add.u32 [%d1+-4], %r1"]),
    ("  mov.u32 %r1, %ctaid.x;", ["mov.u32 %r1, 0"]),
    ("  mov.b32 %r1, %r2;", ["left out"]),
    ("  bar.sync 0;", ["left out"]),
    ("  shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;", [
        "shfl.sync.down.b32 %r1, %r2, 16, 31, -1", "shfl.sync.bfly.b32 %r1, %r2, 17, 31, -1",
        "shfl.sync.bfly.b32 %r1, %r2, 15, 31, -1", "shfl.sync.bfly.b32 %r1, %r2, 16, 32, -1",
        "shfl.sync.bfly.b32 %r1, %r2, 16, 30, -1", "shfl.sync.bfly.b32 %r1, %r2, 16, 31, 0",
        "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -2"]),
]


class Mutate(unittest.TestCase):
    def test_variants(self):
        for body, expected in MUTANTS:
            with self.subTest(body):
                module = ptx.parse(kernel(body))
                mutants = mutate.mutants_of(module, {}, "k")
                text, refused = mutate.woven(module, mutants)
                found = [mutate.text_of(m.after) for m in mutants if m not in refused]
                self.assertEqual(sorted(found), sorted(expected))
                self.assertIn(f"number == {len(mutants) - 1}", text)
                self.assertEqual(mutate.mutants_of(module, {}, "other"), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
