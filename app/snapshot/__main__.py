"""Write lessons and views as static pages: ``python -m app.snapshot --lessons A,B --views links.txt --out site/``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import logging
import re
import sys
from pathlib import Path

from merging.base.errors import MergingError

DESCRIPTION = """Write lessons and views of the app as static pages, which open without a server and without a network.

Views are read from a file with one address from Link in each line. Two spaces and chart=KEY may follow, for a page
with several charts, and slider=KEY, whose values are drawn in advance. Lines that begin with # are ignored."""


def main() -> int:
    """Read the command line, write the snapshot, and return an exit code."""
    options = _parse_options()
    logging.disable(logging.WARNING)  # Streamlit warns for each page that it runs without a server
    from app.snapshot import site, site_folder

    if options.live:
        from app.snapshot import live_desk
        from merging.images.benchmarks.benchmark import Benchmark
    keys = [key for text in options.lessons for key in text.split(",") if key]
    try:
        if options.live:
            files, start = live_desk.make_desk(Benchmark.load()), live_desk.DESK_FILE
        else:
            view_lines = options.views.read_text("utf-8").splitlines() if options.views else []
            snapshot = site.make_site(
                keys, view_lines, options.date, options.repository, lambda message: print(message, flush=True)
            )
            files, start = site.render_site(snapshot), site.START_FILE
        site_folder.write_site(files, options.out)
    except (MergingError, OSError, UnicodeDecodeError) as error:
        print(f"No snapshot was written: {error}", file=sys.stderr)
        return 1
    finally:
        _close()
    size = sum(map(len, files.values())) / 1e6
    print(f"Wrote {len(files)} files, {size:.1f} MB, to {options.out}. Open {options.out / start}.")
    return 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m app.snapshot", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--lessons", action="append", default=[], metavar="KEYS", help="lessons by key, separated by commas"
    )
    parser.add_argument("--views", type=Path, metavar="FILE", help="a file with one address per line")
    parser.add_argument(
        "--live", action="store_true", help="write the desk of the page Mix in place of lessons and views"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the pages are written")
    parser.add_argument(
        "--date", type=_parse_date, metavar="YYYY-MM-DD", help="the date that pages of lessons and views state"
    )
    parser.add_argument(
        "--repository", default="", type=_parse_repository, metavar="URL", help="where the program is found"
    )
    options = parser.parse_args()
    if options.live and (options.lessons or options.views):
        parser.error("--live writes a page of its own: leave out --lessons and --views")
    if not options.live and not options.date:
        parser.error("--date is required for lessons and views")
    return options


def _parse_date(text: str) -> str:
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"a date is written YYYY-MM-DD; got {text!r}") from None


def _parse_repository(text: str) -> str:
    if text and not re.fullmatch(r"https://[\w.-]+(/[\w./~-]*)?", text):
        raise argparse.ArgumentTypeError(f"an address begins with https:// and has no query; got {text!r}")
    return text


def _close() -> None:
    """End the processes that pages started."""
    from app.reading import page_data

    with contextlib.suppress(MergingError):
        page_data.job_queue().close()


if __name__ == "__main__":
    sys.exit(main())
