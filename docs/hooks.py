"""What the website does beyond plain MkDocs: mathematics as MathML, and notebooks as pages.

Both happen when the site is built. The pages need no script and nothing from the network to show a formula.
"""

import base64
import html
import importlib
import json
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


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
    """Turn formulas into MathML, which browsers draw themselves."""
    return MATH.sub(formula, content)


def formula(match: re.Match) -> str:
    """Return one formula as MathML."""
    display = "block" if match[2] == "[" else "inline"
    return convert(html.unescape(match[3]), display=display)


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
