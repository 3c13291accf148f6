"""Figures published in papers, as formulas over two arms, and how they compare with runs."""
