"""Figures that papers published, as formulas over two arms, and what a page's runs say of them."""
