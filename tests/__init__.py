"""The tests, as a package of their own: dlio-benchmark installs one called ``tests`` beside it."""
