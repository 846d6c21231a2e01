"""Papers that several methods or the whole program use, each cited once, and the page that lists all papers."""

from __future__ import annotations

from collections.abc import Iterable

from merging.base.text import markdown_table
from merging.methods.method import Citation, Method

TASK_ARITHMETIC = Citation(
    key="ilharco2023editing",
    authors="Ilharco et al.",
    title="Editing models with task arithmetic",
    venue="ICLR",
    year=2023,
    arxiv="2212.04089",
)
TIES = Citation(
    key="yadav2023ties",
    authors="Yadav et al.",
    title="TIES-Merging: resolving interference when merging models",
    venue="NeurIPS",
    year=2023,
    arxiv="2306.01708",
)
LWPTV = Citation(
    key="zhang2025lwptv",
    authors="Zhang et al.",
    title="Merging smarter, generalizing better: enhancing model merging on OOD data",
    venue="NeurIPS",
    year=2025,
)
SURGERY = Citation(
    key="yang2024representation",
    authors="E. Yang, L. Shen, Z. Wang, G. Guo, X. Chen, X. Wang, D. Tao",
    title="Representation Surgery for Multi-Task Model Merging",
    venue="ICML",
    year=2024,
    arxiv="2402.02705",
)
WEMOE = Citation(
    key="tang2024merging",
    authors="A. Tang, L. Shen, Y. Luo, N. Yin, L. Zhang, D. Tao",
    title="Merging Multi-Task Models via Weight-Ensembling Mixture of Experts",
    venue="ICML",
    year=2024,
    arxiv="2402.00433",
)
TWIN = Citation(
    key="lu2024twin",
    authors="Z. Lu, C. Fan, W. Wei, X. Qu, D. Chen, Y. Cheng",
    title="Twin-Merging: Dynamic Integration of Modular Expertise in Model Merging",
    venue="NeurIPS",
    year=2024,
    arxiv="2406.15479",
)
ISOTROPIC = Citation(
    key="marczak2025isotropic",
    authors="Marczak et al.",
    title="No task left behind: isotropic model merging with common and task-specific subspaces",
    venue="ICML",
    year=2025,
    arxiv="2502.04959",
)
CLIP = Citation(
    key="radford2021clip",
    authors="Radford et al.",
    title="Learning transferable visual models from natural language supervision",
    venue="ICML",
    year=2021,
    arxiv="2103.00020",
)
ADAMERGING = Citation(
    key="yang2024adamerging",
    authors="Yang et al.",
    title="AdaMerging: adaptive model merging for multi-task learning",
    venue="ICLR",
    year=2024,
    arxiv="2310.02575",
)
MASS = Citation(
    key="crisostomi2026mass",
    authors="Crisostomi et al.",
    title="MASS: MoErging through adaptive subspace selection",
    venue="ICLR",
    year=2026,
    arxiv="2504.05342",
)
MERGESCOPE = Citation(
    key="mergescope",
    authors="The authors of Mergescope",
    title="Mergescope: merge fine-tuned CLIP experts and see what the merge did",
    venue="Software",
    year=2026,
)

# Ideas of the program, other than methods, that come from papers.
BACKGROUND = (
    ("task vectors", TASK_ARITHMETIC),
    ("CLIP", CLIP),
    ("eight-task protocol, test-time merging", ADAMERGING),
)

PAGE_HEAD = """\
# Papers that Mergescope implements or starts from

<!-- Written by `make citation` from the registered methods. -->

Please cite the method you use. Each method's card in the app carries its citation, and so does
`mergescope methods --json`.

"""


def citation_page(methods: Iterable[Method]) -> str:
    """The text of CITATION.md: one row per paper, first the program's background, then its methods in order."""
    uses = [*BACKGROUND, *((f"`{method.key}`", method.cite) for method in methods)]
    names_by_paper: dict[Citation, list[str]] = {}
    for name, citation in uses:
        names_by_paper.setdefault(citation, []).append(name)
    cells = [(", ".join(names), _format_markdown(citation)) for citation, names in names_by_paper.items()]
    return f"{PAGE_HEAD}{markdown_table(('what', 'paper'), cells)}\n"


def _format_markdown(citation: Citation) -> str:
    arxiv = f". arXiv:{citation.arxiv}" if citation.arxiv else ""
    return f"{citation.authors.rstrip('.')}. *{citation.title}.* {citation.venue} {citation.year}{arxiv}"
