"""The conditions that bar a call, by the rule that the comparison itself goes by."""

from __future__ import annotations

from wattload.reports.admission import counted_group
from wattload.reports.conditions import differences
from wattload.reports.points import points
from wattload.reports.subject import Group, Subject


def barring(subject: Subject, group: Group) -> frozenset[str]:
    """Return the names of the conditions that set other work in the arms of a group.

    What was swept bars none where both arms ran it, and neither does what tells the arms apart.
    """
    return frozenset(
        item.name
        for point in points(group)
        for item in differences(counted_group(subject, point.group), subject.by)
        if item.is_work and len(point.group.arms) > 1
    )
