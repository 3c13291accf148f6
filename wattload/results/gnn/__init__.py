"""Training on a graph whose features are read from drives."""
