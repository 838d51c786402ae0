"""Execute the tutorials and store their outputs: text and pictures, no progress lines.

    python scripts/notebooks.py [docs/tutorials/influenza.ipynb ...]

Without names, all of them. Needs the extra `docs`. Edit a notebook, run this, then read whether its text still says
what it prints: `tests/test_tutorials.py` compares the numbers.
"""

import argparse
import os
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"


def execute(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of a fresh run."""
    notebook = nbformat.read(path, as_version=4)
    options = {"kernel_name": "python3", "record_timing": False, "coalesce_streams": True}  # of progress, the last line
    pictures = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # tests set another one
    NotebookClient(notebook, timeout=3600, **options).execute(env=os.environ | pictures)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for one in cell.outputs:
                if "image/png" in one.get("data", {}):
                    one["data"].pop("text/plain", None)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def main() -> None:
    """Execute the notebooks named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", type=Path, nargs="*", help="all of them by default")
    for path in parser.parse_args().notebooks or sorted(FOLDER.glob("*.ipynb")):
        start = time.perf_counter()
        nbformat.write(execute(path), path)
        print(f"{path.name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
