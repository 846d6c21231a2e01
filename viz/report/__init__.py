"""A report: chosen views as one HTML document that makes no network request and contains nothing private.

``report_contents.py`` has its plain data, ``document.py`` writes it, and ``private_names.py`` checks it for private
text. Importing this package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from viz.report.report_contents import Entry, Report, ReportError, ReportView, Source

if TYPE_CHECKING:
    from viz.report.private_names import PrivateNames

__all__ = ["Entry", "Report", "ReportError", "ReportView", "Source", "render"]


def render(report: Report, private: PrivateNames | None = None) -> str:
    """The report as one HTML document; equal reports give equal text.

    ``private`` lists the texts that must not be in it, by default folders and names of this machine and its user.

    Raises:
        ReportError: something private is in it, or it has no view. ChartError: a view cannot be drawn.
    """
    from viz.report import document, private_names

    return document.write_report(report, private or private_names.find_private_names())
