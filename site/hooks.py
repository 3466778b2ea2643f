"""Adds the pages that are not in docs/, and makes links to files of the repository work."""

import os
import posixpath
import re

from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPOSITORY = "https://github.com/timingwheel-go/timingwheel"

LINK = re.compile(r"(\]\()([^()\s]+)(\))")
DECLARATIONS = re.compile(r"<!-- with:.*?-->\n", re.S)

# Pages by the file of the repository that they are made of.
PAGES = {"README.md": "index.md", "site/wheel/page.md": "wheel.md"}


def on_files(files, config):
    for page in PAGES.values():
        files.append(File(page, config["docs_dir"], config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_read_source(page, config):
    for source, name in PAGES.items():
        if page.file.src_path == name:
            with open(os.path.join(ROOT, source), encoding="utf-8") as file:
                return file.read()
    return None


def on_page_markdown(markdown, page, config, files):
    """Rewrites links, which are relative to the page's file in the repository."""
    source = next((s for s, name in PAGES.items() if name == page.file.src_path), None)
    source = source or posixpath.join("docs", page.file.src_path)

    def rewrite(match):
        target, hash_, heading = match[2].partition("#")
        if not target or ":" in target or source.startswith("site/"):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if target in PAGES:
            target = PAGES[target]
        elif target.startswith("docs/"):
            target = target[len("docs/"):]
        else:
            kind = "tree" if os.path.isdir(os.path.join(ROOT, target)) else "blob"
            return f"{match[1]}{REPOSITORY}/{kind}/main/{target}{hash_}{heading}{match[3]}"
        target = posixpath.relpath(target, posixpath.dirname(page.file.src_path) or ".")
        return f"{match[1]}{target}{hash_}{heading}{match[3]}"

    return LINK.sub(rewrite, DECLARATIONS.sub("", markdown))
