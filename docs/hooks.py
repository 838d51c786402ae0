"""What the website does beyond plain MkDocs: mathematics as MathML, notebooks as pages, and help for screen readers.

All of it happens when the site is built. The pages need no script and nothing from the network to show a formula.
"""

import base64
import html
import importlib
import json
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

SECTION = re.compile(
    r'aria-labelledby="__nav_\d+_label"([^>]*>\s*<label class="md-nav__title".*?</span>\s*([^<]+?)\s*</label>)',
    re.DOTALL,
)
MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)

PICTURE = re.compile(r'<img [^>]*src="([^"]+)"[^>]*>')
CELL = re.compile(r"<td( [^>]*)?>(.*?)</td>", re.DOTALL)
NUMBER = re.compile(r"[-–\d.,/ ]*\d( ?[±(%]| sd |$)")
LONG_CELL = 40  # characters


def on_files(files, config):
    """Add a page for every notebook, and a file for each of its pictures."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        page, pictures = page_of(Path(notebook.abs_src_path))
        stem = notebook.src_uri.removesuffix(".ipynb")
        files.append(File.generated(config, f"{stem}.md", content=page))
        for name, content in pictures.items():
            files.append(File.generated(config, f"{Path(stem).parent.as_posix()}/{name}", content=content))
    return files


def on_page_markdown(markdown, **_):
    """Let links to notebooks lead to their pages, and find the file of every name on an API page."""
    markdown = re.sub(r"\]\((?!https?:)([^)]*)\.ipynb\)(?!\{)", r"](\1.md)", markdown)
    return re.sub(r"^::: (\S+)$", home, markdown, flags=re.MULTILINE)


def home(match: re.Match) -> str:
    """Return an API entry with the module that defines its name: packages import names when they are first used."""
    package, _, name = match[1].rpartition(".")
    return f"::: {getattr(importlib.import_module(package), name).__module__}.{name}"


def on_page_content(content, **_):
    """Turn formulas into MathML, which browsers draw themselves; let the keyboard scroll wide tables; enlarge pictures."""
    content = content.replace("<table>", '<div class="wide" role="group" aria-label="table" tabindex="0"><table>')
    content = re.sub(r"<th( [^>]*)?></th>", r"<td\1></td>", content)  # a corner without words is no heading
    content = CELL.sub(wide_enough, content)
    content = PICTURE.sub(r'<a class="picture" href="\1">\g<0></a>', content)
    return MATH.sub(formula, content.replace("</table>", "</table></div>"))


def wide_enough(cell: re.Match) -> str:
    """Return a cell with a mark if it holds a sentence, which a narrow screen would break into a column of single words,
    or a number with its error, which it would break as well.
    """
    words = html.unescape(re.sub(r"<[^>]*>", "", cell[2])).strip()
    kind = "words" if len(words) > LONG_CELL else "number" if NUMBER.match(words) else ""
    return f'<td class="{kind}"{cell[1] or ""}>{cell[2]}</td>' if kind else cell[0]


def on_post_page(output, **_):
    """Name what the theme leaves without a name: the search, and the menu of a section that has a page of its own."""
    output = output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)
    return SECTION.sub(r'aria-label="\2"\1', output)


def on_post_build(config, **_):
    """Remove the page for addresses that do not exist: it refers to the root of a server, where this site need not be."""
    (Path(config.site_dir) / "404.html").unlink(missing_ok=True)


def formula(match: re.Match) -> str:
    """Return one formula as MathML."""
    if match[2] == "(":
        return convert(html.unescape(match[3]), display="inline")
    block = convert(html.unescape(match[3]), display="block")
    return f'<div class="wide" role="group" aria-label="formula" tabindex="0">{block}</div>'


def page_of(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![{alternative(parts)}]({name})")
            else:
                text = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(f"```{{.text .output}}\n{text.rstrip()}\n```")
    parts.append(f"---\n\n[Download this notebook]({path.name}){{download}}")
    return "\n\n".join(parts), pictures


def alternative(parts: list[str]) -> str:
    """Return the heading above a picture, which stands in for it where pictures cannot be seen."""
    headings = re.findall(r"^#+ (.+)$", "\n".join(parts), flags=re.MULTILINE)
    return headings[-1] if headings else "figure"
