"""The page of a shard's documents as one HTML file that contains its pictures, and loads nothing."""

from collections import Counter
from typing import Final

from markupsafe import Markup

from interleaved_assets.model.errors import ROW_ERROR_CODES
from interleaved_assets.pipeline.stages.dag import OUTPUTS
from interleaved_assets.reporting.documents.budget import fit_documents
from interleaved_assets.reporting.documents.document import sortable_scores
from interleaved_assets.reporting.documents.pages import DocumentPage
from interleaved_assets.reporting.figures.drops import common_prefix
from interleaved_assets.reporting.figures.facts import shard_counts
from interleaved_assets.reporting.wording import text
from interleaved_assets.reporting.wording.page import policy_hash, source, template

_TEMPLATE: Final = "documents.html.j2"


def documents_html(page: DocumentPage, plots: str = "") -> str:
    """Return the page as HTML. ``plots`` is a picture as a ``data:`` URL, if any.

    The same documents give the same page. All text from data is escaped, and a content security policy allows only the
    page's own style and script.
    """
    documents = fit_documents(page.documents)
    reasons = [document.reasons for document in documents]
    with_reason = Counter(reason for found in reasons for reason in found)
    style = Markup("\n").join(source(name) for name in ("theme.css", "documents.css"))
    script = source("documents.js")
    return template(_TEMPLATE).render(
        page=page,
        plots=plots,
        documents=documents,
        reasons_of=[sorted(found) for found in reasons],
        with_reason=text.most_frequent(with_reason),
        scores=sortable_scores(documents),
        prefix=common_prefix([document.sample_id for document in documents]),
        counts=shard_counts(page.facts) if page.facts else [],
        error_codes=ROW_ERROR_CODES,
        hiding=[name for name, output in OUTPUTS.items() if output.hides_dropped_texts],
        images=sum(item.modality == "image" for document in documents for item in document.items),
        is_cut=any(document.left_out or any(item.cut for item in document.items) for document in documents),
        style=style,
        style_hash=policy_hash(style),
        script=script,
        script_hash=policy_hash(script),
    )
