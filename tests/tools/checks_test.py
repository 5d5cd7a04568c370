#!/usr/bin/env python3
"""The checkers find what they are there for: plants each violation in a small tree of its own."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_layers
import check_names


def tree_with(files):
    """A temporary tree of a few sound files, and those given: path -> text."""
    sound = {
        "include/sluice/error.h": "#ifndef SLUICE_ERROR_H_\n#define SLUICE_ERROR_H_\n#endif\n",
        "src/base/half.h": "#ifndef SLUICE_SRC_BASE_HALF_H_\n#define SLUICE_SRC_BASE_HALF_H_\n"
        '#include "sluice/error.h"\n#endif\n',
        "src/kernels/dot.cc": '#include <hwy/highway.h>\n#include "src/base/half.h"\n',
        "src/base/CMakeLists.txt": "sluice_library(sluice_base SOURCES half.cc)\n",
        "README.md": "See `src/base/half.h`.\n",
    }
    directory = tempfile.TemporaryDirectory()
    for name, text in {**sound, **files}.items():
        path = pathlib.Path(directory.name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory


class Layers(unittest.TestCase):
    def violations(self, files):
        with tree_with(files) as tree:
            return check_layers.check(pathlib.Path(tree))[0]

    def assert_found(self, name, text, expected):
        found = self.violations({name: text})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(name), found)
        self.assertIn(expected, found[0])

    def test_a_sound_tree_passes(self):
        self.assertEqual(self.violations({}), [])

    def test_the_tree_looks_at_something(self):
        here = pathlib.Path(__file__).resolve().parents[2]
        for folder in check_layers.HOUSE:
            self.assertTrue(list((here / folder).glob("*.[hc]*")), f"{folder} has no source")

    def test_a_folder_that_includes_one_below_it(self):
        self.assert_found("src/base/bad.cc", '#include "src/kernels/dot.cc"\n', "lies below it")

    def test_the_library_that_includes_the_quantizer(self):
        self.assertIn(
            "lies below it",
            self.violations(
                {
                    "quant/quantizer/q.h": "",
                    "src/file/bad.cc": '  #  include "quant/quantizer/q.h"\n',
                }
            )[0],
        )

    def test_a_public_header_that_includes_an_inner_one(self):
        self.assert_found("include/sluice/bad.h", '#include "src/base/half.h"\n', "lies below it")

    def test_foreign_headers_away_from_their_home(self):
        for name, header in [
            ("include/sluice/bad.h", "hwy/highway.h"),
            ("include/sluice/bad.h", "xnnpack.h"),
            ("include/sluice/bad.h", "pthreadpool.h"),
            ("src/base/bad.cc", "hwy/highway.h"),
            ("src/ffn/bad.cc", "xnnpack.h"),
            ("src/file/bad.cc", "pthreadpool.h"),
            ("quant/report/bad.cc", "CLI/CLI.hpp"),
            ("src/base/bad.cc", "gtest/gtest.h"),
        ]:
            self.assert_found(name, f"#include <{header}>\n", "only")
            self.assert_found(name, f'#include "{header}"\n', "only")

    def test_an_include_by_another_path(self):
        self.assert_found("src/base/bad.cc", '#include "half.h"\n', "not a path from the top")

    def test_an_include_of_tests(self):
        found = self.violations(
            {"tests/support/seed.h": "", "src/base/bad.cc": '#include "tests/support/seed.h"\n'}
        )
        self.assertIn("no part of the house", found[0])

    def test_our_own_header_in_brackets(self):
        self.assert_found("src/base/bad.cc", "#include <sluice/error.h>\n", "with quotes")

    def test_a_folder_that_is_not_in_the_house(self):
        self.assert_found("src/misc/bad.cc", "", "outside")

    def test_tests_may_include_all(self):
        self.assertEqual(
            self.violations({"tests/a_test.cc": '#include "src/kernels/dot.cc"\n'}), []
        )

    def test_a_long_file_is_a_warning(self):
        with tree_with({"src/base/long.cc": "\n" * 501, "src/base/short.cc": "\n" * 500}) as tree:
            violations, warnings = check_layers.check(pathlib.Path(tree))
        self.assertEqual(violations, [])
        self.assertEqual(len(warnings), 1)
        self.assertIn("long.cc", warnings[0])


class Names(unittest.TestCase):
    def violations(self, files):
        with tree_with(files) as tree:
            return check_names.check(pathlib.Path(tree))

    def test_a_sound_tree_passes(self):
        self.assertEqual(self.violations({}), [])

    def test_each_violation_is_found(self):
        for name, text, expected in [
            ("src/base/Bad.cc", "", "lower_snake_case"),
            ("src/base/bad.h", "#pragma once\n", "SLUICE_SRC_BASE_BAD_H_"),
            ("include/sluice/bad.h", "#ifndef BAD_H\n#define BAD_H\n", "SLUICE_BAD_H_"),
            ("tests/src/bad.cc", "TEST(A, B) {}\n", "_test.cc"),
            ("src/format/CMakeLists.txt", "add_library(formats a.cc)\n", "sluice_format"),
            ("NOTES.md", "Look at `src/base/gone.h`.\n", "not there"),
        ]:
            found = self.violations({name: text})
            self.assertEqual(len(found), 1, (name, found))
            self.assertTrue(found[0].startswith(name), found)
            self.assertIn(expected, found[0])

    def test_a_highway_header_needs_no_plain_guard(self):
        self.assertEqual(self.violations({"src/kernels/dot-inl.h": "// no guard\n"}), [])


if __name__ == "__main__":
    unittest.main()
