"""Each fault of a site is found: python3 -m unittest in this folder."""

import os
import tempfile
import unittest

import hooks

GOOD = '<link rel="stylesheet" href="a.css"><h2 id="x">X</h2><a href="b.html#y">b</a><a href="https://elsewhere">c</a><img src="a.svg">'


class Check(unittest.TestCase):
    def faults(self, page=GOOD, css="a { background: url(a.svg) }"):
        with tempfile.TemporaryDirectory() as d:
            for name, text in {"a.html": page, "b.html": '<p id="y"></p>', "a.css": css, "a.svg": "<svg/>"}.items():
                with open(os.path.join(d, name), "w", encoding="utf-8") as f:
                    f.write(text)
            return hooks.check(d)

    def test_good(self):
        self.assertEqual([], self.faults())

    def test_bad(self):
        for page, says in {
            '<a href="c.html">c</a>': "a.html refers to c.html, which is not there",
            '<a href="b.html#z">c</a>': "a.html refers to b.html#z, which has no such place",
            '<a href="#z">c</a>': "a.html refers to #z, which has no such place",
            '<img src="c.png">': "a.html refers to c.png, which is not there",
            '<img src="https://elsewhere/c.png">': "a.html loads https://elsewhere/c.png",
            '<script src="//elsewhere/c.js"></script>': "a.html loads //elsewhere/c.js",
            '<link rel="stylesheet" href="https://elsewhere/c.css">': "a.html loads https://elsewhere/c.css",
            '<link rel="preconnect" href="https://elsewhere">': "a.html loads https://elsewhere",
            '<style>a { background: url("https://elsewhere/d") }</style>': "a.html loads https://elsewhere/d",
            '<p style="background: url(https://elsewhere/e)"></p>': "a.html loads https://elsewhere/e",
        }.items():
            self.assertEqual([says], self.faults(page), page)
        self.assertEqual(["a.css loads https://elsewhere/f"], self.faults(css="@import 'https://elsewhere/f';"))
        with tempfile.TemporaryDirectory() as d:
            self.assertEqual(["there is no page"], hooks.check(d))


if __name__ == "__main__":
    unittest.main()
