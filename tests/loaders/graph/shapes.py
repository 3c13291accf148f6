"""A graph of two types that is written in a moment."""

from wattload.loaders.graph.shapes import GraphShape, NodeType, Relation

SMALL = GraphShape(
    "small",
    (NodeType("paper", 1000), NodeType("author", 37)),
    (Relation(1, "writes", 0, 5003, 90, 700), Relation(0, "rev_writes", 1, 5003, 700, 90)),
)
