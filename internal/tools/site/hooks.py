"""What the site adds to mkdocs: links out of docs/ lead to the source, pages that another page's
text is made of, and a check of everything that was built."""

import html.parser
import logging
import os
import re
import urllib.parse

log = logging.getLogger("mkdocs.hooks")
ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
LINK = re.compile(r"\]\((\.\./[^)\s#]*)(#[^)\s]*)?\)")


def helps():
    """Makes a section of each verb's help."""
    with open(os.path.join(ROOT, "cmd/fencepost/testdata/help.txt"), encoding="utf-8") as f:
        parts = ("\n" + f.read()).split("\n$ fencepost help")[1:]
    sections = (part.split("\n", 1) for part in parts)
    return "".join(f"\n## fencepost{verb}\n\n```text\n{text.strip()}\n```\n" for verb, text in sections)


def on_page_markdown(markdown, page, config, files):
    """Adds the help to commands.md, and lets links to files outside of docs/ lead to the source."""
    if page.file.src_uri == "commands.md":
        markdown += helps()

    def source(m):
        path = os.path.normpath(os.path.join(os.path.dirname(page.file.src_uri), m[1]))
        path = os.path.normpath(os.path.join("docs", path))
        full = os.path.join(ROOT, path)
        if not os.path.exists(full):
            log.warning("%s links to %s, which does not exist", page.file.src_uri, m[1])
        kind = "tree" if os.path.isdir(full) else "blob"
        return f"]({config.extra['source']}/{kind}/main/{path}{m[2] or ''})"

    return LINK.sub(source, markdown)


def on_post_page(output, page, config):
    """Gives the search a name, which the theme lacks: a screen reader says it."""
    return output.replace('data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"')


class Page(html.parser.HTMLParser):
    """The names and the references of a page."""

    def __init__(self):
        super().__init__()
        self.names, self.links, self.loads, self.inline, self.tag = set(), [], [], [], ""

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.tag = tag
        for name in (a.get("id"), a.get("name") if tag == "a" else None):
            if name:
                self.names.add(name)
        if tag == "a" and a.get("href") is not None:
            self.links.append(a["href"])
        if tag == "link" and a.get("rel") not in ("canonical", "prev", "next", "edit"):
            self.loads.append(a.get("href", ""))
        for part in ("src", "srcset", "poster", "data"):
            if a.get(part) and tag in ("script", "img", "iframe", "video", "audio", "source", "object", "embed"):
                self.loads.append(a[part])
        if a.get("style"):
            self.inline.append(a["style"])

    def handle_data(self, data):
        if self.tag == "style":
            self.inline.append(data)


def check(folder):
    """Returns what is wrong with a site: links that lead nowhere, and what comes from elsewhere."""
    pages, faults = {}, []
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            if name.endswith(".html"):
                pages[path] = Page()
                with open(path, encoding="utf-8") as f:
                    pages[path].feed(f.read())
            elif name.endswith((".css", ".svg")):
                with open(path, encoding="utf-8") as f:
                    text = f.read()
                for url in re.findall(r"""(?:url\(|@import\s)\s*["']?((?:https?:)?//[^"')\s]+)""", text):
                    faults.append(f"{os.path.relpath(path, folder)} loads {url}")
    if not pages:
        faults.append("there is no page")
    for path, page in pages.items():
        here = os.path.relpath(path, folder)
        for url in page.loads + re.findall(r"""url\(\s*["']?((?:https?:)?//[^"')\s]+)""", " ".join(page.inline)):
            if re.match(r"(https?:)?//", url):
                faults.append(f"{here} loads {url}")
        for url in page.links + [u for u in page.loads if not u.startswith("data:")]:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme or parts.netloc or here == "404.html":
                continue
            to = path
            if parts.path:
                to = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(parts.path)))
                if os.path.isdir(to):
                    to = os.path.join(to, "index.html")
            if not os.path.exists(to):
                faults.append(f"{here} refers to {url}, which is not there")
            elif parts.fragment and to in pages and urllib.parse.unquote(parts.fragment) not in pages[to].names | {"__top"}:
                faults.append(f"{here} refers to {url}, which has no such place")
    return sorted(set(faults))


def on_post_build(config):
    for fault in check(config.site_dir):
        log.warning("%s", fault)  # an error, because the build is strict
