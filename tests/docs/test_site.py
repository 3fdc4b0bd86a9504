"""The documents as a site: every link leads somewhere, and nothing in it comes from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site is built by mkdocs, of the extra `docs`")
    to = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", to]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return to


def test_every_document_is_a_page(site: Path) -> None:
    pages = {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}
    assert {text.relative_to(DOCS).with_suffix("") for text in DOCS.rglob("*.md")} == pages - {Path("404")}
    assert not list(site.rglob("*.py"))


def test_the_site_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"([^\"]*)\"|<link[^>]*\shref=\"([^\"]*)\"", text)
        assert [url for pair in loaded for url in pair if re.match(r"(?:https?:)?//", url)] == [], page.name


def test_every_picture_of_the_text_is_drawn_by_the_script() -> None:
    drawn = set(re.findall(r"\(pictures/(\w+)\.svg\)", (DOCS / "concepts.md").read_text()))
    assert drawn == {picture.stem for picture in (DOCS / "pictures").iterdir()}
    script = (DOCS / "pictures.py").read_text()
    for name in drawn:
        assert f'"{name}": (draw_{name},' in script
        assert ET.parse(DOCS / "pictures" / f"{name}.svg").getroot().tag.endswith("svg")  # noqa: S314 # our own
