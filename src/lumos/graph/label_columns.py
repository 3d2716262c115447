"""Which column of a label file is the id, and which the label."""

from lumos.graph.options import ReadOptions
from lumos.graph.text_table import TextTable

CERTAIN = ("target", "targets", "label", "labels", "class", "classes", "y", "ground_truth")
"""Names that columns of classes have."""
LIKELY = (
    "mature",
    "page_type",
    "type",
    "kind",
    "category",
    "subject",
    "topic",
    "group",
    "community",
    "club",
    "class_id",
    "label_id",
)
"""Names that they may have, where no column has one of the certain names."""
IDS = ("new_id", "id", "node_id", "device_id", "node", "device", "user", "user_id", "vertex")
"""Names that columns of ids have; `new_id` is what edges speak of where there is an `id` too."""


def id_column(table: TextTable) -> int:
    """Index of the column with the ids: `new_id`, else the first, unless that is the label."""
    header = table.header
    if "new_id" in header:
        return header.index("new_id")
    if header and header[0] in (*CERTAIN, *LIKELY):
        return next((header.index(name) for name in IDS if name in header), 0)
    return 0


def label_column(table: TextTable, ids: int, options: ReadOptions) -> tuple[int | None, str]:
    """Index of the column with the labels, and a note where its name decided.

    None says that the file has no header that would tell: the label is the second column then.

    Raises:
        InputError: several columns may be meant, or the one that was asked for is not there.
    """
    header = table.header
    if options.no_labels:
        return ids, ""
    if options.label_column is not None:
        return _asked(table, options.label_column, ids), ""
    others = [column for column in range(len(header)) if column != ids]
    if not others:
        return None, ""
    if len(others) == 1 and header[others[0]] not in IDS:
        return others[0], ""
    for names in (CERTAIN, LIKELY):
        found = [column for column in others if header[column] in names]
        if len(found) == 1:
            kept = header[found[0]]
            return found[0], f"labels are the column {kept!r} of {', '.join(header)}"
        if found:
            break
    if options.multilabel == "refuse" or ids != 0:
        table.refuse(
            1,
            f"which column is the label? It has {', '.join(header)}; name one with "
            f"`label_column={header[others[0]]!r}`, or keep the first of several labels with "
            "`multilabel='first'`",
        )
    return None, ""


def _asked(table: TextTable, wanted: str, ids: int) -> int:
    """Index of the column that the caller named or numbered, from 1."""
    if wanted.casefold() in table.header:
        column = table.header.index(wanted.casefold())
    elif wanted.isdecimal() and 1 <= int(wanted) <= table.width():
        column = int(wanted) - 1
    else:
        has = ", ".join(table.header) or f"{table.width()} columns without names"
        table.refuse(1, f"there is no column {wanted!r}; `label_column` is one of: {has}")
    if column == ids:
        table.refuse(1, f"column {wanted!r} holds the ids; choose another as `label_column`")
    return column
